"""Answers of hooks: one answer is JSON or an exit status; the answers to one event merge to one `HookAnswers`.

A refusal wins, then a request to ask the user, then a permission. If two hooks change the input of a call, the later
one in the order of the files wins. Texts for the model are joined in that order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

REFUSES = 2
"""Exit status that means a refusal."""

MOST_TEXT = 20_000
"""Maximum characters of one hook's text for the model."""

PLAIN_TEXT = ("SessionStart", "UserPromptSubmit")
"""Events whose hooks may print plain text for the model, instead of JSON."""


class HookAnswers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Merged answers of hooks to one event.

    Attributes:
        refused: why the action is blocked, or for an end event why the agent must continue; None without a refusal.
        verdict: for a call: `ask` the user, `allow` without a question; "" for none.
        input: replacement arguments for the call; None to keep them.
        context: texts for the model.
        ends: why the whole run must end; None to continue.
        notes: texts for the user: messages and failures of hooks.
    """

    refused: str | None = None
    verdict: Literal["", "ask", "allow"] = ""
    input: dict[str, Any] | None = None
    context: tuple[str, ...] = ()
    ends: str | None = None
    notes: tuple[str, ...] = ()


def of_command(event: str, status: int | None, stdout: str, stderr: str, hook: str) -> HookAnswers:
    """Parse the answer of a command that exited by itself.

    Raises:
        ValueError: the command failed, or its JSON is invalid; the text is the reason.
    """
    if status == REFUSES:
        return HookAnswers(
            refused=_bounded(stderr.strip()) or f"the hook `{hook}` refused the action and printed no reason"
        )
    if status != 0:
        raise ValueError(f"exited with status {status}: {_bounded(stderr.strip())[:400] or 'it printed no error'}")
    text = stdout.strip()
    if not text.startswith("{"):
        return HookAnswers(context=(_bounded(text),)) if text and event in PLAIN_TEXT else HookAnswers()
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"printed no JSON: {error}") from error
    return of_json(event, value)


def of_json(event: str, value: object) -> HookAnswers:
    """Parse an answer in Claude Code's JSON format.

    Raises:
        ValueError: the value is invalid.
    """
    if not isinstance(value, Mapping):
        raise ValueError("the answer is not a JSON object")
    own = value.get("hookSpecificOutput") or {}
    if not isinstance(own, Mapping):
        raise ValueError("`hookSpecificOutput` is not an object")
    decision = own.get("permissionDecision") or value.get("decision")
    reason = own.get("permissionDecisionReason") or value.get("reason") or ""
    input = own.get("updatedInput")
    if input is not None and not isinstance(input, dict):
        raise ValueError("`updatedInput` is not an object")
    if decision not in (None, "", "allow", "approve", "deny", "block", "ask", "defer"):
        raise ValueError(f"unknown decision {decision!r}; expected allow, approve, deny, block, ask or defer")
    refuses = decision in ("deny", "block")
    context = own.get("additionalContext")
    note = value.get("systemMessage")
    return HookAnswers(
        refused=(_bounded(str(reason)) or "a hook refused the action without a reason") if refuses else None,
        verdict="ask" if decision == "ask" else "allow" if decision in ("allow", "approve") else "",
        # After the call it is too late to change its arguments.
        input=input if event == "PreToolUse" else None,
        context=(_bounded(str(context)),) if context else (),
        ends=str(value.get("stopReason") or "a hook ended the run") if value.get("continue") is False else None,
        notes=(_bounded(str(note)),) if note else (),
    )


def together(answers: Iterable[HookAnswers]) -> HookAnswers:
    """Merge all answers to one event."""
    given = list(answers)
    verdicts = {each.verdict for each in given}
    inputs = [each.input for each in given if each.input is not None]
    refusals = [each.refused for each in given if each.refused is not None]
    return HookAnswers(
        refused="\n".join(refusals) if refusals else None,
        verdict="ask" if "ask" in verdicts else "allow" if "allow" in verdicts else "",
        input=inputs[-1] if inputs else None,
        context=tuple(text for each in given for text in each.context),
        ends=next((each.ends for each in given if each.ends is not None), None),
        notes=tuple(text for each in given for text in each.notes),
    )


def _bounded(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\n[... {len(text) - MOST_TEXT} characters left out]"
