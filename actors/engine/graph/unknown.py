"""What was done to the world when the program was killed: a person decides whether it is done again.

Nobody knows whether a script that was under way then has done its work. It is asked about (`again`, `skip`, `fail`); if
nobody is there, the node fails, and its `fallback` counts. What has ended is not done again (`once`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from ....protocol.errors import NobodyToAsk, UnknownOutcome
from ....protocol.journal import decode_value
from ....protocol.kernel.questions import Question
from ...work.journal.scope import here

if TYPE_CHECKING:
    from ....supervisors import Actor

T = TypeVar("T")

AGAIN, SKIP, FAIL = "again", "skip", "fail"


async def may_do(me: Actor, node: str, what: str) -> bool:
    """Whether a node may do what changes the world: in a durable run that it will is on the disk then.

    Returns:
        False: it was under way when an earlier process was killed, and a person wants it left out.

    Raises:
        UnknownOutcome: it was, and a person wants the node to fail, or nobody is there.
        JournalError: nothing may be done, since it can't be kept.
    """
    scope = here(me)
    if scope is None:
        return True
    verdict = AGAIN
    for _ in range(scope.intended(what)):  # each time it was killed it was asked about; the last answer counts
        verdict = await _asked(me, node, what)
    if verdict == FAIL:
        raise UnknownOutcome(f"{what} was under way when the program ended, and is not to be done again")
    if verdict == SKIP:
        return False
    await scope.intend(what)
    return True


async def once(
    me: Actor,
    node: str,
    what: str,
    kind: type[T],
    work: Callable[[], Awaitable[T]],
    *,
    skipped: T,
    name: str = "",
    noted: bool = True,
) -> T:
    """What this comes to, which may change the world: done once in all lives of a durable run, as far as is known.

    Args:
        node: the id of the node whose work it is a part of.
        what: it, for people; of two in one firing the first has ended before the second begins.
        kind: of what it comes to, which is data.
        skipped: what it comes to if a person wants it left out.
        name: what its end is noted as; "" for `what`.
        noted: whether that is noted; not where the end of its node's work is told at once.

    Raises:
        UnknownOutcome, JournalError: see `may_do`.
    """
    scope = here(me)
    if scope is None:
        return await work()
    ended = scope.ended(name or what)
    if ended is not None:
        return decode_value(ended, kind)
    result = await work() if await may_do(me, node, what) else skipped
    if noted:
        scope.note(name or what, result)
    return result


async def _asked(me: Actor, node: str, what: str) -> str:
    question = Question(
        id="",
        actor="",
        node=node,
        kind="choice",
        text=f"{what} was under way when the program ended. It may have done its work, a part of it, or nothing.",
        options=(AGAIN, SKIP, FAIL),
        free=False,
        permission=what,
    )
    try:
        return (await me.ask_person(question)).text
    except NobodyToAsk as error:
        raise UnknownOutcome(
            f"{what} was under way when the program ended, and nobody is there to say whether it is to be done again"
        ) from error
