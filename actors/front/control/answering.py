"""Answers to questions of live, dormant, resuming and interrupted runs.

The state of a run may change between the check and the answer, so each route has its own safeguard. A resuming run
first asks again (`_settled`). A dormant run that is changing state is waited for. For an interrupted run, the answer is
stored on disk and read when the run resumes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ....protocol.control.caller import Caller
from ...runs.offline_questions import leave_for
from ...work.journal.pending_answers import run_of
from .runs.running import check_owner

if TYPE_CHECKING:
    from .hub import Hub
    from .open_questions import OpenQuestions

SETTLED_WITHIN = 10.0
"""Seconds for a resuming run to ask its questions again."""
LOOK_AGAIN = 0.5
"""Seconds between two checks whether it has asked."""


async def answer(hub: Hub, open: OpenQuestions, caller: Caller, question: str, value: str | list[str]) -> bool:
    """Answer a question of any run that the caller may access; see `Hub.answer`."""
    caller.need("answer:questions")
    asked = open.open.get(question)
    run = run_of(question) if asked is None else asked.run  # some ids do not contain a run
    if hub.cluster is not None and hub.cluster.has(run):
        check_owner(caller, hub.running.owner_of(run), run)
        return await hub.cluster.answer(question, value, caller.called)
    await _settled(hub, open, question)
    asked = open.open.get(question)
    if asked is None:
        return await _leave(hub, caller, question, value)
    check_owner(caller, hub.running.owner_of(asked.run), asked.run)
    if hub.dormant.has(asked.run):
        await hub.dormant.settled(asked.run)
        if await hub.dormant.answer(asked, value, caller.called):
            return True
    return await hub.root.kernel.questions.answer_for_good(question, value, by=caller.called)


async def _settled(hub: Hub, open: OpenQuestions, question: str) -> None:
    """Wait while the asking run is about to ask again."""
    run = run_of(question)
    if not hub.resuming.settles(run) or question in open.open:
        return
    with trio.move_on_after(SETTLED_WITHIN), open.watch(lambda each: each.run == run) as feed:
        while hub.resuming.settles(run) and question not in open.open:
            with trio.move_on_after(LOOK_AGAIN):
                await anext(feed)


async def _leave(hub: Hub, caller: Caller, question: str, value: str | list[str]) -> bool:
    """Store an answer for an interrupted run; returns False if the run does not wait for one."""
    run = run_of(question)
    info = hub.logs.past.get(run)
    if info is None or info.status != "interrupted" or run in hub.running.live:
        return False
    check_owner(caller, info.owner, run)
    return await trio.to_thread.run_sync(leave_for, run, question, value, caller.called)
