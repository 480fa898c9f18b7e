"""A run in a session, for `callboard run` and `callboard ask`: which session, and whether it is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from .. import Agent, Outcome, Root
from .. import run as run_target
from ..actors.runs.target import find, read
from ..protocol.chat import Turn
from ..protocol.errors import CallboardError, ConfigError
from ..protocol.questions import Question

WAIT = 30.0
"""Seconds to wait for another process that works with the session."""


@dataclass(frozen=True)
class Wish:
    """What the user says of sessions.

    Attributes:
        name: of the session, or its id; None for what the agent's file or the settings say.
        save: whether it is kept; None for what the session and the settings say.
        person: whether somebody at the terminal can be asked.
        note: tells the user something.
    """

    name: str | None
    save: bool | None
    person: bool
    note: Callable[[str], None]


async def run_in_session(root: Root, target: str | Agent, prompt: str, wish: Wish, **options: Any) -> Outcome:
    """Run the target, in a session if one is wanted."""
    name = wish.name or _named_elsewhere(root, target, options)
    if name is None:
        return await run_target(target, prompt, root=root, **options)
    from ..actors.runs.in_session import agent_of, say
    from ..actors.runs.sessions.names import TEMP

    playing: Any = target
    if isinstance(target, str):
        found = find(target, config_dir=root.config_dir)
        playing = read(
            found,
            root.config_dir,
            strict=options["strict"],
            compat=options["compat"],
            shelf=root.shelf,
            variables=options["variables"],
        )
    agent = agent_of(playing)
    if name == TEMP:
        return await _temporary(root, playing, prompt, wish, agent, options)
    return await say(
        root,
        None,
        name,
        prompt,
        target=playing,
        agent=agent,
        keep=wish.save,
        compress=False,  # as in Loki: it would hold the answer up; `callboard sessions compress` does it
        wait=WAIT,
        on_wait=lambda busy: wish.note(f"waiting: {busy}"),
        **options,
    )


def _named_elsewhere(root: Root, target: str | Agent, options: dict[str, Any]) -> str | None:
    """The session that the agent's file names, or the settings for all agents; `cmd_prelude` where there is none."""
    if isinstance(target, str):
        from ..actors.runs.in_session import session_of_agent

        return session_of_agent(root, target, strict=options["strict"], compat=options["compat"])
    prelude = str(root.settings.other.get("cmd_prelude") or "")
    kind, colon, name = prelude.partition(":")
    if not prelude or kind == "role":
        return None  # roles are not there
    if not colon or not kind or not name:
        raise ConfigError(f"`cmd_prelude` is session:NAME, SESSION:ROLE or role:NAME, not '{prelude}'")
    return name if kind == "session" else kind


async def _temporary(
    root: Root, target: Any, prompt: str, wish: Wish, agent: str | None, options: dict[str, Any]
) -> Outcome:
    """A session without a past, which is kept only if somebody wants it; then a model finds its name."""
    said: list[Turn] = []

    def keep(turns: Sequence[Turn]) -> None:
        said[:] = turns

    outcome = await run_target(target, prompt, root=root, on_history=keep, **options)
    save = wish.save if wish.save is not None else root.settings.other.get("save_session")
    if said and save is None and wish.person:
        save = await _asked(root)
    if said and save:
        from ..actors.runs.in_session import keep_temporary

        try:
            stored = await keep_temporary(root, said, agent=agent, model=options.get("model"))
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
        return False  # nobody is there any more
