"""Puts the findings of a pass to those of the passes before, and makes one text of them all.

A question that was looked into again has its new answer, in its old place; where that failed, it keeps the old one.
"""

from __future__ import annotations

import json
import sys

from graph_state import graph_state

state = graph_state()
answers: dict[str, str] = {answer["question"]: answer["finding"] for answer in state.get("answers") or []}
failed: dict[str, str] = {}
for at, finding in enumerate(state.get("question_findings") or []):
    question = state["questions"][at]
    if isinstance(finding, dict):  # what a map with `on_error: collect` leaves of an item that failed
        failed[question] = str(finding.get("error") or finding)
    elif str(finding).strip():
        answers[question] = str(finding).strip()
    else:
        failed[question] = "nothing was reported"
if not answers:
    sys.exit("no question could be answered: " + ("; ".join(failed.values()) or "the plan has none"))
sections = [*answers.items()]
sections += [(question, f"Not answered: {why}") for question, why in failed.items() if question not in answers]
print(
    json.dumps(
        {
            "answers": [{"question": question, "finding": finding} for question, finding in answers.items()],
            "findings": "\n\n".join(f"## {question}\n\n{text}" for question, text in sections),
        }
    )
)
