"""What was done to the world when the program was killed: whether it is done again.

What changes the world is on the disk as an intent (`Intends`) before it begins. An intent without an end is a call, or
a script, of which nobody knows whether it did its work. Each time a process was killed in the midst of it, this is
settled by what its author says (`Repeats`), and else as the run wants it (`OnUnknown`), by the first of these that says
something: the flag `--on-unknown` of `run` or `resume`; `on_unknown` of the node, of the agent; `durable.on_unknown`
of config.yaml. Without any, a model is told, and about a script a person is asked: again, skip or fail. If no person is
there, it fails with `unknown_outcome`, and the node's `fallback` counts. A task of a batch, which asks nobody, would
begin anew if nothing was kept of it: its scripts are run again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from ....protocol.errors import NobodyToAsk, UnknownOutcome
from ....protocol.events import CallUnknown
from ....protocol.journal import BATCH, decode_value
from ....protocol.json_values import NotJson, decode
from ....protocol.kernel.questions import Question
from ....protocol.repeats import OnUnknown
from ..call_clock import current as call_clock
from .scope import Scope, here

if TYPE_CHECKING:
    from ....supervisors import Actor

T = TypeVar("T")

Verdict: TypeAlias = Literal["again", "told", "skipped"]

AGAIN, SKIP, TELL, FAIL = "again", "skip", "tell", "fail"
_RULE = "'skip' goes on without its output; or write the JSON object that it would have printed"
_TOLD: dict[str, Verdict] = {AGAIN: "again", TELL: "told", SKIP: "skipped"}


class Skipped:
    """A script that is left out, and what a person has said that it would have printed: an object, or nothing."""

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
    """Settle whether a script may run; in a durable run that it will is on the disk then.

    Args:
        has_output: a person may say what it would have printed.
        within: seconds to wait for a disk that takes nothing.

    Returns:
        None: it may. Otherwise it was under way when an earlier process was killed, and a person wants it left out.

    Raises:
        UnknownOutcome: it was, and it is to fail, or nobody is there to be asked.
        JournalError: nothing may be done, since it can't be kept.
    """
    scope = here(me)
    if scope is None:
        return None
    if wanted is None and scope.run.about.by == BATCH:
        wanted = "again"
    verdict: str | Skipped = AGAIN
    unknown = scope.intended(what)
    for _ in range(unknown):  # each time it was killed it was settled; the last time counts
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
    """Settle whether a call that changes the world may be made; in a durable run that it will is on the disk then.

    Args:
        repeatable: its tool says that it may be made again.
        server: the MCP server that may remember something of it.

    Returns:
        False: it was under way when an earlier process was killed, and the model is to be told so.

    Raises:
        UnknownOutcome: it was, and whoever made the call is to fail.
        JournalError: nothing may be done, since it can't be kept.
    """
    scope = here(me)
    if scope is None:
        return True
    verdict = AGAIN
    unknown = scope.intended(what)
    for _ in range(unknown):
        if not repeatable:
            verdict = await _asked_about_call(me, what) if wanted == "ask" else wanted or TELL
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
    """What this comes to, which may change the world: done once in all lives of a durable run, as far as is known.

    Args:
        node: the id of the node whose work it is a part of.
        what: it, for people; of two in one firing the first has ended before the second begins.
        kind: of what it comes to, which is data.
        skipped: what it comes to if a person wants it left out.
        name: what its end is noted as; "" for `what`.
        noted: whether that is noted; not where the end of its node's work is told at once.
        within: seconds to wait for a disk that takes nothing.

    Raises:
        UnknownOutcome, JournalError: see `may_run`.
    """
    scope = here(me)
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
    """The key of a call, for tools that do their work once for each: the same in all lives of a durable run."""
    scope = here(me)
    return secrets.token_hex(16) if scope is None else key_of(scope)


def key_of(scope: Scope) -> str:
    """See `call_key`."""
    return hashlib.blake2s(f"{scope.run.rows.run}/{scope.path}".encode(), digest_size=16).hexdigest()


def _failed(what: str) -> UnknownOutcome:
    return UnknownOutcome(f"{what} was under way when the program ended, and is not to be done again")


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
        problem = "that is neither one of them nor a JSON object"


async def _asked_about_call(me: Actor, what: str) -> str:
    return await _asked(me, None, what, (AGAIN, TELL, FAIL), "'tell': the model is told, and goes on")


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
        text=f"{what} was under way when the program ended. It may have done its work, a part of it, or nothing.",
        options=options,
        free=free,
        rule=rule,
        problem=problem,
        permission=what,
    )
    clock = call_clock.get()
    try:
        with nullcontext() if clock is None else clock.stopped():
            return (await me.ask_person(question)).text
    except NobodyToAsk as error:
        raise UnknownOutcome(
            f"{what} was under way when the program ended, and nobody is there to say whether it is to be done again"
        ) from error
