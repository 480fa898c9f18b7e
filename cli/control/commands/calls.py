"""Implementation of `callboard show`: finds a run's model calls in the state directory. Needs no server."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from ....actors.front.control.logs.model_calls import has_calls, read_body, read_call, read_calls
from ....actors.front.control.run_records import below, no_call, no_stored_call
from ....actors.views.call_text import CallPart, head, reply_parts, request_parts
from ....protocol.control.resources import ModelCall, ModelCallDetail, RunInfo
from ....protocol.errors import NotFound, UsageError
from ...render.text import colours, counted, json_object, one_line, paint, safe, table
from ..figures import amount, money
from .stored_runs import LAST, find_stored_run, runs_dir

_HEAD = ("N", "TIME", "ACTOR", "MODEL", "MESSAGES", "TOKENS", "COST", "MS", "REPLY")


def list_calls(word: str, *, as_json: bool) -> str:
    """Return the output of `show RUN`.

    Raises:
        NotFound: there is no such run, or none of its calls is stored.
    """
    run, calls = _calls(word)
    if as_json:
        return json_object(run=run.run, calls=[msgspec.to_builtins(call) for call in calls])
    dropped = calls[0].number - 1 if calls else 0
    if dropped:
        sys.stderr.write(f"the first {counted(dropped, 'call')} of {run.run} were dropped to limit the size\n")
    return table([_HEAD, *(_row(call, run) for call in calls)])


def show_calls(word: str, of: str | None, *, part: str | None, all_calls: bool, as_json: bool) -> str:
    """Return the output of `show RUN CALL`.

    Args:
        of: a number, `last`, the name of a node or of an agent, or the path of an actor; None for all calls of the run.
        part: `request` or `reply`; None for both; `raw` for the request body as it was sent.
        all_calls: True shows all matching calls, False the last one.

    Raises:
        NotFound: there is no such run or call, or it is not stored.
        UsageError: several actors have that name.
    """
    run, calls = _calls(word)
    found = matching_calls(run, calls, of, all_calls=all_calls)
    chosen = found if all_calls else found[-1:]
    if part == "raw":
        return "".join(_body(run.run, call.number) for call in chosen)
    details = [_detail(runs_dir() / run.run, run.run, call.number, calls) for call in chosen]
    if as_json:
        told = [_part(detail, part) for detail in details]
        return json_object(run=run.run, **({"calls": told} if all_calls else {"call": told[0]}))
    if len(found) > len(chosen) and of not in (None, LAST):
        numbers = ", ".join(str(call.number) for call in found)
        sys.stderr.write(f"'{of}' has calls {numbers}; this is the last of them (--all shows all)\n")
    coloured = colours(sys.stdout)
    lines = [line for detail in details for line in (*_call_lines(detail, part, coloured=coloured), "")]
    return "\n".join(lines[:-1]) + "\n"


def matching_calls(
    run: RunInfo, calls: Sequence[ModelCall], of: str | None, *, all_calls: bool = False
) -> list[ModelCall]:
    """Return the calls that match the user's word, at least one.

    Raises:
        NotFound: no call matches.
        UsageError: calls of several actors match.
    """
    if of is None:
        return list(calls)
    if of == LAST:
        return list(calls[-1:])
    if of.isdecimal():
        found = [call for call in calls if call.number == int(of)]
        if not found:
            raise no_call(run.run, int(of), list(calls))
        return found
    if of.startswith("/"):
        found = [call for call in calls if below(call.actor, of)]
    else:
        found = [call for call in calls if _name(call.actor) == of]
        found = found or [call for call in calls if of in call.actor.split("/")[2:]]
    actors = dict.fromkeys(call.actor for call in found)
    if not actors:
        names = ", ".join(dict.fromkeys(_name(call.actor) for call in calls))
        raise NotFound(f"{run.run} has no stored request of '{of}'; it has those of {names}")
    if len(actors) > 1 and not all_calls and of not in actors:
        told = ", ".join(_with_numbers(actor, calls) for actor in list(actors)[:5])
        more = ", ..." if len(actors) > 5 else ""
        raise UsageError(f"'{of}' means several actors of {run.run}: {told}{more}; give a number, or --all")
    return found


def _with_numbers(actor: str, calls: Sequence[ModelCall]) -> str:
    return f"{actor} ({', '.join(str(call.number) for call in calls if call.actor == actor)})"


def _calls(word: str) -> tuple[RunInfo, list[ModelCall]]:
    run = find_stored_run(word)
    directory = runs_dir() / run.run
    calls = read_calls(directory)
    if not calls:
        raise no_stored_call(run.run) if not has_calls(directory) else no_call(run.run, None, [])
    return run, calls


def _detail(directory: Path, run: str, number: int, calls: list[ModelCall]) -> ModelCallDetail:
    detail = read_call(directory, number)
    if detail is None:  # dropped since it was listed
        raise no_call(run, number, calls)
    return detail


def _body(run: str, number: int) -> str:
    body = read_body(runs_dir() / run, number)
    if body is None:
        raise NotFound(f"the body of call {number} of {run} is not stored: it was too long, or was not sent")
    return (safe(body) if sys.stdout.isatty() else body) + "\n"


def _part(detail: ModelCallDetail, part: str | None) -> object:
    told = msgspec.to_builtins(detail)
    return told if part is None else told[part]


def _name(actor: str) -> str:
    return actor.rpartition("/")[2]


def _row(call: ModelCall, run: RunInfo) -> Sequence[str]:
    tokens = f"{amount(call.input_tokens)} + {amount(call.output_tokens)}" if call.input_tokens else ""
    reply = {
        "asked": "cut off" if run.over else "...",
        "failed": call.error,
        "answered": f"calls {', '.join(call.calls)}" if call.calls else call.stop,
    }[call.status]
    again = f" ({call.tries} tries)" if call.tries > 1 else ""
    return (
        str(call.number),
        _clock(call.started),
        one_line(call.actor.removeprefix(f"/{run.run}/"), 40),
        one_line(call.model, 30),
        str(call.messages),
        tokens,
        money(call.cost or 0.0),
        "" if call.seconds is None else f"{call.seconds * 1000:,.0f}",
        one_line(reply, 80) + again,
    )


def _clock(text: str) -> str:
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return ""


def _call_lines(call: ModelCallDetail, part: str | None = None, *, coloured: bool = False) -> list[str]:
    """Return the lines of a call.

    Args:
        part: `request` or `reply` selects one part; None selects both.
        coloured: True styles the headings.
    """

    def styled(text: str, style: str) -> str:
        return paint(text, style) if coloured else text

    parts: list[CallPart] = []
    if part != "reply":
        parts += request_parts(call)
    if part != "request":
        parts += reply_parts(call)
    lines = [styled(one_line(head(call), 200), "dim")]
    for each in parts:
        title = styled(f"--- {one_line(each.title, 100)} ---", "error" if each.failed else "title")
        lines += ["", title, *safe(each.text.removesuffix("\n")).split("\n")]
    return lines
