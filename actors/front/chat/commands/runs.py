"""`.ps`, `.attach`, `.steps`, `.from`: watch runs and change to other chats, and fork runs at one of their steps.

An attached run is shown in this chat as if it answered here. An attached chat is another conversation: the answer to
the line names it, and the client changes to it (`_chat/watch`). This chat does not change, so the command is allowed
while a run answers here.

A fork that `.from` starts is watched as with `.attach`; its output does not become part of the conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from .....protocol.control import chat as frames
from .....protocol.control import method_structs
from .....protocol.control.resources import Step
from .....protocol.errors import Conflict, NotFound
from .....protocol.relative_time import age, seconds_since
from ...control.durable_runs import fork_run, steps_of_run
from ..command_line import ChatLine, command
from .info import in_columns

if TYPE_CHECKING:
    from .....protocol.control.caller import Caller
    from .....protocol.control.resources import RunInfo
    from ...control.logs.files import LoggedEvent
    from ..chat import Chat

MOST_RUNS = 1000
MOST_NAMED = 20
"""Maximum number of chats, and of runs, listed in an error."""

MOST_STEPS = 1000
"""Maximum number of steps shown; earlier ones are omitted."""

LONGEST = 100
"""Maximum characters of a step's text."""


@command(".steps", "Show the steps of the last run", usage="[run]", at_work=True, scopes=("write:runs",))
async def _steps(line: ChatLine) -> None:
    run, after = _run(line, line.rest), 0
    steps: list[Step] = []
    while True:
        page = await steps_of_run(line.hub, line.caller, run, after, MOST_STEPS)
        steps = [*steps, *page.steps][-MOST_STEPS:]
        if page.next is None:
            break
        after = page.next
    rows = [(str(step.row), step.where, step.what, step.text) for step in steps]
    await line.say("\n".join(in_columns([("STEP", "WHERE", "WHAT", ""), *rows], LONGEST)))
    await line.note("Start a new run from one of these steps with `.from STEP [words]`.")


@command(
    ".from",
    "Start a new run from a step of the last one, with other words",
    usage="<step> [words...]",
    scopes=("write:runs", "run:agents"),
)
async def _from(line: ChatLine) -> None:
    at, _, words = line.rest.partition(" ")
    if not at:
        raise line.misused()
    # `RUN:STEP` selects a step of another run.
    run, _, at = at.rpartition(":")
    wanted = method_structs.ForkRun(run=_run(line, run), at=at, prompt=words.strip() or None, dry_run=True)
    # Dry run first: the user must see which effects would be repeated before they are.
    looked = await fork_run(line.hub, line.caller, wanted)
    if looked.again:
        await line.say(
            "The new run repeats these side effects of later steps:\n" + "\n".join(f"- {each}" for each in looked.again)
        )
        if not await line.confirm("Go on?"):
            return
    begun = await fork_run(line.hub, line.caller, method_structs.ForkRun(run=wanted.run, at=at, prompt=wanted.prompt))
    assert begun.run is not None
    await watch(line, begun.run)


def _run(line: ChatLine, word: str) -> str:
    run = word or line.chat.last_run
    if run is None:
        raise Conflict("This chat has no run yet; show the steps of another run with `.steps RUN`.")
    return run


@command(".ps", "List the active runs", at_work=True, scopes=("read:runs",))
async def _ps(line: ChatLine) -> None:
    shown = _listed([], under_way) if (under_way := _under_way(line)) else "Nothing runs."
    await line.say(shown)


def _under_way(line: ChatLine) -> list[RunInfo]:
    """Return the runs under way, newest first."""
    runs, _ = line.hub.page(line.caller, status=None, limit=MOST_RUNS, before=None)
    return [each for each in runs if not each.over]


def _offered(chat: Chat, caller: Caller, words: Sequence[str]) -> list[tuple[str, str]]:
    if len(words) > 1 or not caller.has("read:runs"):
        return []
    runs, _ = chat.hub.page(caller, status=None, limit=20, before=None)
    return [
        *((each.id, about(each)) for each in _others(chat, caller)),
        *((each.run, f"{each.status} {each.title or each.name}") for each in runs),
    ]


def _others(chat: Chat, caller: Caller) -> list[Chat]:
    """Return the other chats that the caller may attach to."""
    return [] if chat.among is None else [each for each in chat.among.seen_by(caller) if each.id != chat.id]


def about(chat: Chat) -> str:
    """Return the description of a chat that is shown in completions of its id."""
    return f"{_state(chat):<9} {_answers(chat)}  {chat.subject or ''}".rstrip()


def _state(chat: Chat) -> str:
    return "running" if chat.answering is not None or chat.busy else "idle"


def _answers(chat: Chat) -> str:
    return chat.agent or chat.role or chat.model_in_use


def _listed(chats: Sequence[Chat], runs: Sequence[RunInfo], most: int = MOST_RUNS) -> str:
    """Return a table of chats and runs, newest first, with at most `most` of each."""
    newest = sorted(chats, key=lambda each: each.started, reverse=True)[:most]
    rows = [("ID", "STATE", "SINCE", "WITH", "SESSION", "TITLE")]
    rows += [
        (
            each.id,
            _state(each),
            age(seconds_since(each.started)),
            _answers(each),
            "" if each.session is None else each.session.name,
            each.subject or "",
        )
        for each in newest
    ]
    rows += [
        (each.run, each.status, age(seconds_since(each.started)), each.name or each.target, "", each.title)
        for each in runs[:most]
    ]
    left = len(chats) + len(runs) - (len(rows) - 1)
    return "\n".join([*in_columns(rows), *([f"and {left} more"] if left else [])])


def _begins(id: str, word: str, kind: str) -> bool:
    return id.startswith((word, f"{kind}-{word}"))


def _matching_chats(chat: Chat, caller: Caller, word: str) -> list[Chat]:
    others = _others(chat, caller)
    return [each for each in others if each.id == word] or [each for each in others if _begins(each.id, word, "chat")]


def _matching_runs(chat: Chat, caller: Caller, word: str) -> list[RunInfo]:
    runs, _ = chat.hub.page(caller, status=None, limit=MOST_RUNS, before=None)
    # An exact id wins, so that an id which is a prefix of another one remains usable.
    return [each for each in runs if each.run == word] or [each for each in runs if _begins(each.run, word, "run")]


def _shows_or_goes(chat: Chat, caller: Caller, word: str) -> bool:
    """Return True if the command may run during a run: it lists, or changes to a chat.

    Watching a run would collide with the run that answers here.
    """
    if not word or not caller.has("read:runs"):
        return True
    return word == chat.id or bool(_matching_chats(chat, caller, word))


@command(
    ".attach",
    "List chats and runs; with an id, change to it or watch it",
    usage="[chat|run]",
    scopes=("read:runs",),
    at_work=_shows_or_goes,
    in_macros=False,
    completes=_offered,
)
async def _attach(line: ChatLine) -> None:
    word = line.rest
    if not word:
        others, under_way = _others(line.chat, line.caller), _under_way(line)
        there = bool(others or under_way)
        await line.say(_listed(others, under_way) if there else "There is no other chat, and no active run.")
        return
    if word == line.chat.id:
        raise Conflict(f"{word} is the chat that you are in")
    chats, runs = _matching_chats(line.chat, line.caller, word), _matching_runs(line.chat, line.caller, word)
    ids = [*(each.id for each in chats), *(each.run for each in runs)]
    if not ids:
        raise NotFound(f"there is no chat and no run {word[:60]!r}; list them with .attach")
    if len(ids) > 1:
        named = _listed(chats, runs, MOST_NAMED)
        raise Conflict(f"{word[:60]!r} is the beginning of {len(ids)} ids; use one of them with .attach\n{named}")
    if chats:
        line.attach = chats[0].id
    else:
        await watch(line, runs[0])


async def watch(line: ChatLine, run: RunInfo) -> None:
    """Show a run until its end as if it answered here."""
    await line.person.began(frames.Began(chat=line.chat.id, run=run.run, prompt="", title=run.name or run.target))

    # The client follows the events by itself: this only waits for the end of the run.
    async def passed_over(_: LoggedEvent) -> None:
        await trio.lowlevel.checkpoint()

    with line.chat.attached_to(run.run):
        await line.hub.follow(line.caller, run.run, passed_over, run.seq if run.over else 0)
    line.run, line.status = run.run, line.hub.get(line.caller, run.run).status
