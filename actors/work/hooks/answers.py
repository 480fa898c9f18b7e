"""What hooks say: one answer is JSON, or an exit status; all answers to one event come to one `Said`.

What refuses wins, then what wants a person asked, then what allows. Of two that change the input of a call the later
one counts, in the order in which they stand in files. Texts for the model are put together in that order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

REFUSES = 2
"""The exit status that refuses."""

MOST_TEXT = 20_000
"""Characters of one hook's text that the model gets."""

PLAIN_TEXT = ("SessionStart", "UserPromptSubmit")
"""Events at which what a hook prints is told to the model even if it is no JSON."""


class Said(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What hooks have said of one event.

    Attributes:
        refused: why it must not go on, or must go on instead of ending; None if nobody said so.
        verdict: of a call: `ask` a person, `allow` it without asking; "" for nothing.
        input: other arguments for the call; None for those that it has.
        context: texts for the model.
        ends: why the whole run is to end; None if nobody said so.
        notes: texts for the user: what hooks have to say, and what went wrong with them.
    """

    refused: str | None = None
    verdict: Literal["", "ask", "allow"] = ""
    input: dict[str, Any] | None = None
    context: tuple[str, ...] = ()
    ends: str | None = None
    notes: tuple[str, ...] = ()


def of_command(event: str, status: int | None, stdout: str, stderr: str, hook: str) -> Said:
    """What a command has said that has ended by itself.

    Raises:
        ValueError: it has failed, or its JSON makes no sense; the text says how.
    """
    if status == REFUSES:
        return Said(refused=_bounded(stderr.strip()) or f"the hook `{hook}` refused, and said nothing")
    if status != 0:
        raise ValueError(f"ended with exit status {status}: {_bounded(stderr.strip())[:400] or 'it said nothing'}")
    text = stdout.strip()
    if not text.startswith("{"):
        return Said(context=(_bounded(text),)) if text and event in PLAIN_TEXT else Said()
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"printed no JSON: {error}") from error
    return of_json(event, value)


def of_json(event: str, value: object) -> Said:
    """What JSON says, in the shape of Claude Code.

    Raises:
        ValueError: it makes no sense.
    """
    if not isinstance(value, Mapping):
        raise ValueError("answered with something that is no object")
    own = value.get("hookSpecificOutput") or {}
    if not isinstance(own, Mapping):
        raise ValueError("`hookSpecificOutput` is no object")
    decision = own.get("permissionDecision") or value.get("decision")
    reason = own.get("permissionDecisionReason") or value.get("reason") or ""
    input = own.get("updatedInput")
    if input is not None and not isinstance(input, dict):
        raise ValueError("`updatedInput` is no object")
    if decision not in (None, "", "allow", "approve", "deny", "block", "ask", "defer"):
        raise ValueError(f"decided {decision!r}, which is not known here")
    refuses = decision in ("deny", "block")
    context = own.get("additionalContext")
    note = value.get("systemMessage")
    return Said(
        refused=(_bounded(str(reason)) or "a hook refused, and gave no reason") if refuses else None,
        verdict="ask" if decision == "ask" else "allow" if decision in ("allow", "approve") else "",
        input=input if event == "PreToolUse" else None,
        context=(_bounded(str(context)),) if context else (),
        ends=str(value.get("stopReason") or "a hook ended the run") if value.get("continue") is False else None,
        notes=(_bounded(str(note)),) if note else (),
    )


def together(answers: Iterable[Said]) -> Said:
    """What they all come to."""
    given = list(answers)
    verdicts = {each.verdict for each in given}
    inputs = [each.input for each in given if each.input is not None]
    refusals = [each.refused for each in given if each.refused is not None]
    return Said(
        refused="\n".join(refusals) if refusals else None,
        verdict="ask" if "ask" in verdicts else "allow" if "allow" in verdicts else "",
        input=inputs[-1] if inputs else None,
        context=tuple(text for each in given for text in each.context),
        ends=next((each.ends for each in given if each.ends is not None), None),
        notes=tuple(text for each in given for text in each.notes),
    )


def _bounded(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\n[... {len(text) - MOST_TEXT} characters left out]"
