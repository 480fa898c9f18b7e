"""A run in a session, for `callboard run` and `callboard ask`: which session, and whether it is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import uuid4

import msgspec

from .. import Outcome, Root
from ..actors.runs.begin import perform
from ..actors.runs.hooks import Hooks
from ..protocol.chat import Turn
from ..protocol.errors import CallboardError, ConfigError
from ..protocol.questions import Question
from ..protocol.requests import RunRequest

WAIT = 30.0
"""Seconds to wait for another process that works with the session."""


@dataclass(frozen=True)
class Wish:
    """What the user says of sessions.

    Attributes:
        name: of the session, or its id; None for what the agent's file or the settings say.
        save: whether it is kept; None for what the session and the settings say.
        person: whether the terminal can ask its user.
        note: tells the user something.
    """

    name: str | None
    save: bool | None
    person: bool
    note: Callable[[str], None]


async def run_in_session(root: Root, request: RunRequest, hooks: Hooks, wish: Wish) -> Outcome:
    """Run the request, in a session if one is wanted."""
    name = wish.name or await _named_elsewhere(root, request)
    if name is None:
        return await perform(request, hooks, root)
    from ..actors.runs.in_session import agent_of, say
    from ..actors.runs.sessions.names import TEMP

    agent: str | None = None
    if isinstance(request.target, str):
        loaded = await root.loader.load(request, hooks)
        agent, hooks = agent_of(loaded), msgspec.structs.replace(hooks, loaded=loaded)
    if name == TEMP:
        return await _temporary(root, request, hooks, wish, agent)
    return await say(
        root,
        None,
        name,
        request,
        hooks,
        agent=agent,
        keep=wish.save,
        compress=False,  # as in Loki: it would hold the answer up; `callboard sessions compress` does it
        wait=WAIT,
        on_wait=lambda busy: wish.note(f"waiting: {busy}"),
    )


async def _named_elsewhere(root: Root, request: RunRequest) -> str | None:
    """The session that the agent's file names, or the settings for all agents; `cmd_prelude` where there is none."""
    if isinstance(request.target, str):
        from ..actors.runs.in_session import session_of_agent

        return await session_of_agent(root, request)
    prelude = str(root.settings.other.get("cmd_prelude") or "")
    kind, colon, name = prelude.partition(":")
    if not prelude or kind == "role":
        return None  # roles are not there
    if not colon or not kind or not name:
        raise ConfigError(f"`cmd_prelude` is session:NAME, SESSION:ROLE or role:NAME, not '{prelude}'")
    return name if kind == "session" else kind


async def _temporary(root: Root, request: RunRequest, hooks: Hooks, wish: Wish, agent: str | None) -> Outcome:
    """A session without a past, which is kept only if the user wants it; then a model finds its name."""
    said: list[Turn] = []

    def keep(turns: Sequence[Turn]) -> None:
        said[:] = turns

    outcome = await perform(request, msgspec.structs.replace(hooks, on_history=keep), root)
    save = wish.save if wish.save is not None else root.settings.other.get("save_session")
    if said and save is None and wish.person:
        save = await _asked(root)
    if said and save:
        from ..actors.runs.in_session import keep_temporary

        try:
            stored = await keep_temporary(root, said, agent=agent, model=request.model)
        except CallboardError as error:
            wish.note(f"the session could not be kept: {error}")
        else:
            wish.note(f"session: {stored.label}")
    return outcome


async def _asked(root: Root) -> bool:
    top = root.kernel.actor
    question = Question(
        id=f"keep-{uuid4().hex[:8]}", actor=top.path, text="Keep this session?", kind="confirm", default="no"
    )
    try:
        return (await top.ask_person(question)).text == "yes"
    except CallboardError:
        return False  # no person is there
