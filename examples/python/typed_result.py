"""Typed results: the answer is a dataclass. An answer that does not fit is asked for again."""

from dataclasses import dataclass
from typing import Annotated

import msgspec

import callboard


@dataclass
class Verdict:
    score: Annotated[int, msgspec.Meta(ge=1, le=5)]
    reasons: list[str]


judge = callboard.Agent(name="judge", instructions="Judge the text.", result=Verdict)
verdict = callboard.run_sync(judge, "It was a dark and stormy night.").unwrap()
print(verdict.score, *verdict.reasons)
