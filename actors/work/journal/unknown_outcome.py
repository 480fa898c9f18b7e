"""Side effects with unknown outcome: the decision whether to execute them again after a kill.

An action with side effects writes an intent (`Intends`) to disk before it begins. An intent without an end is a call or
a script that may or may not have done its work. For each process killed during it, a decision is needed:

1. The author of the tool may declare calls repeatable (`Repeats`).
2. Otherwise the run's setting decides (`OnUnknown`), by the first of these that is set: the flag `--on-unknown` of
   `run` or `resume`; `on_unknown` of the node, then of the agent; `durable.on_unknown` of config.yaml.
3. Otherwise a model is informed of an unknown call. For a script the user is asked: again, skip or fail. If no user is
   attached, it fails with `unknown_outcome`, and the node's `fallback` applies.

A task of a batch asks no questions. Without a journal it would start from the beginning, so its scripts run again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from ....protocol.errors import NobodyToAsk, UnknownOutcome
from ....protocol.events import CallUnknown
from ....protocol.interrupted_calls import OnUnknown
from ....protocol.journal import BATCH, decode_value
from ....protocol.json_values import NotJson, decode
from ....protocol.kernel.questions import Question
from ..call_clock import current as call_clock
from .actor_journal import JournalScope, scope_of

if TYPE_CHECKING:
    from ....supervisors import Actor

T = TypeVar("T")

Verdict: TypeAlias = Literal["again", "told", "skipped"]

AGAIN, SKIP, TELL, FAIL = "again", "skip", "tell", "fail"
_RULE = "'skip' continues without its output; or enter the JSON object that it would have printed"
_TOLD: dict[str, Verdict] = {AGAIN: "again", TELL: "told", SKIP: "skipped"}


class Skipped:
    """Result for a script that is left out, with the output that the user supplied for it, if any."""

    def __init__(self, output: dict[str, Any] | None = None) -> None:
        self.output = output


async def may_run(
    me: Actor,
    node: str,
    what: str,
    wanted: OnUnknown | None,
    *,
    has_output: bool = True,
    within: float | None = None,
) -> Skipped | None:
    """Decide whether a script may run. In a durable run its intent is on the disk afterwards.

    Args:
        has_output: True if the user may supply the output of the script.
        within: seconds to wait for a disk that accepts no data.

    Returns:
        None if it may run. Otherwise it was running when an earlier process was killed, and the user wants it left out.

    Raises:
        UnknownOutcome: it was running then, and it must fail, or no user is attached.
        JournalError: it must not run, since its intent can't be stored.
    """
    scope = scope_of(me)
    if scope is None:
        return None
    if wanted is None and scope.run.about.by == BATCH:
        wanted = "again"
    verdict: str | Skipped = AGAIN
    unknown = scope.intended(what)
    for _ in range(unknown):  # once per kill: earlier decisions are replayed from the journal, and the last one counts
        if wanted in (AGAIN, FAIL):
            verdict = wanted
        else:
            verdict = await _asked_about_script(me, node, what, has_output=has_output)
    if unknown:
        _emit(me, what, SKIP if isinstance(verdict, Skipped) else verdict)
    if isinstance(verdict, Skipped):
        return verdict
    if verdict == FAIL:
        raise _failed(what)
    await scope.intend(what, within=within)
    return None


async def may_call(me: Actor, what: str, wanted: OnUnknown | None, *, repeatable: bool, server: str = "") -> bool:
    """Decide whether a call with side effects may be made. In a durable run its intent is on the disk afterwards.

    Args:
        repeatable: True if its tool declares that a call may be repeated.
        server: MCP server that may have state of the call.

    Returns:
        False if it was active when an earlier process was killed, and the model is to be informed of that.

    Raises:
        UnknownOutcome: it was active then, and the caller must fail.
        JournalError: it must not be made, since its intent can't be stored.
    """
    scope = scope_of(me)
    if scope is None:
        return True
    verdict = AGAIN
    unknown = scope.intended(what)
    for _ in range(unknown):
        if not repeatable:
            if wanted == "ask":
                verdict = await _asked(
                    me, None, what, (AGAIN, TELL, FAIL), "'tell': the model is informed, and continues"
                )
            else:
                verdict = wanted or TELL
    if unknown:
        _emit(me, what, verdict)
    if verdict == FAIL:
        raise _failed(what)
    if verdict == TELL:
        return False
    await scope.intend(what, server)
    return True


async def once(
    me: Actor,
    node: str,
    what: str,
    kind: type[T],
    work: Callable[[], Awaitable[T]],
    *,
    wanted: OnUnknown | None,
    skipped: T,
    name: str = "",
    noted: bool = True,
    within: float | None = None,
) -> T:
    """Return the result of work with side effects, executed once in all incarnations as far as that is known.

    Args:
        node: id of the node that the work belongs to.
        what: description for users; of two with the same one in a firing, the first ends before the second begins.
        kind: type of the result, which must be storable.
        skipped: result if the user wants the work left out.
        name: name under which the end is noted; "" for `what`.
        noted: False if no end is noted, because the end of the node's work is delivered immediately.
        within: seconds to wait for a disk that accepts no data.

    Raises:
        UnknownOutcome, JournalError: see `may_run`.
    """
    scope = scope_of(me)
    if scope is None:
        return await work()
    ended = scope.ended(name or what)
    if ended is not None:
        return decode_value(ended, kind)
    left_out = await may_run(me, node, what, wanted, has_output=False, within=within)
    result = await work() if left_out is None else skipped
    if noted:
        scope.note(name or what, result)
    return result


def call_key(me: Actor) -> str:
    """Return the key of a call, for tools that do their work once per key: the same in all incarnations of a durable
    run."""
    scope = scope_of(me)
    # Without a journal no incarnation repeats the call, so any unique key works.
    return secrets.token_hex(16) if scope is None else key_of(scope)


def key_of(scope: JournalScope) -> str:
    """Return the key of a call of this scope; see `call_key`."""
    # Derived from run and path, so the key needs no row of its own.
    return hashlib.blake2s(f"{scope.run.rows.run}/{scope.path}".encode(), digest_size=16).hexdigest()


def _failed(what: str) -> UnknownOutcome:
    return UnknownOutcome(f"{what} was running when the program ended, and must not be repeated (`on_unknown`)")


def _emit(me: Actor, what: str, verdict: str) -> None:
    if me.stream.heard:
        me.emit(CallUnknown(what=what, then="failed" if verdict == FAIL else _TOLD[verdict]))


async def _asked_about_script(me: Actor, node: str, what: str, *, has_output: bool) -> str | Skipped:
    problem = None
    while True:
        rule = _RULE if has_output else None
        text = await _asked(me, node, what, (AGAIN, SKIP, FAIL), rule, problem, free=has_output)
        if text in (AGAIN, FAIL):
            return text
        if text == SKIP:
            return Skipped()
        try:
            output = decode(text.encode())
        except NotJson:
            output = None
        if isinstance(output, dict):
            return Skipped(output)
        problem = "the answer is neither one of the options nor a JSON object"


async def _asked(
    me: Actor,
    node: str | None,
    what: str,
    options: tuple[str, ...],
    rule: str | None,
    problem: str | None = None,
    *,
    free: bool = False,
) -> str:
    question = Question(
        id="",
        actor="",
        node=node,
        kind="choice",
        text=f"{what} was running when the program ended. It may have done all of its work, a part of it, or nothing.",
        options=options,
        free=free,
        rule=rule,
        problem=problem,
        permission=what,
    )
    clock = call_clock.get()
    # The user's time for the answer does not count as the call's.
    try:
        with nullcontext() if clock is None else clock.stopped():
            return (await me.ask_person(question)).text
    except NobodyToAsk as error:
        raise UnknownOutcome(
            f"{what} was running when the program ended, and no user is attached to decide whether to repeat it; "
            "decide with --on-unknown"
        ) from error
