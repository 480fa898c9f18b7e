"""A run in a session: it goes on from what was said, and what it says is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...protocol.agent import Agent
from ...protocol.chat import Turn as Said
from ...protocol.errors import CallboardError, ShuttingDown, UsageError
from ...protocol.events import Event
from ...protocol.outcome import Outcome
from ...protocol.session import Session
from ...protocol.session_turns import messages_of, system_of
from ..runs.run import run
from ..runs.target import GraphAgent, Loaded, LoopAgent, WorkflowAgent, find, read
from .names import as_id
from .summary import automatic_alias, compressed, first_words, threshold_of, titled, too_long

if TYPE_CHECKING:
    from ...protocol.control.caller import Caller
    from ..runs.root import Root
    from .live import Turn
    from .store import Stored

FORGET_WITHIN = 2.0


async def say(
    root: Root,
    caller: Caller | None,
    name: str,
    prompt: str,
    *,
    target: Any = None,
    agent: str | None = None,
    on_event: Callable[[Event], None] | None = None,
    compress: bool = True,
    keep: bool | None = None,
    model: str | None = None,
    variables: Mapping[str, str] | None = None,
    wait: float = 0.0,
    on_wait: Callable[[CallboardError], None] | None = None,
    **options: Any,
) -> Outcome:
    """Run an agent in a session, and wait for its end: see `on_stage`.

    Args:
        compress: whether the session is shortened after the turn, if it has become long.
        options: more arguments of `runs.run`.
    """
    async with on_stage(
        root,
        caller,
        name,
        target=target,
        agent=agent,
        keep=keep,
        model=model,
        variables=variables,
        wait=wait,
        on_wait=on_wait,
        strict=bool(options.get("strict")),
        compat=options.get("compat"),
    ) as (turn, arguments):
        outcome = await run(prompt=prompt, on_event=on_event, root=root, **arguments, **options)
        await round_off(root, turn, arguments["target"], prompt, compress=compress)
    return outcome


@asynccontextmanager
async def on_stage(
    root: Root,
    caller: Caller | None,
    name: str,
    *,
    target: Any = None,
    agent: str | None = None,
    keep: bool | None = None,
    model: str | None = None,
    variables: Mapping[str, str] | None = None,
    wait: float = 0.0,
    on_wait: Callable[[CallboardError], None] | None = None,
    strict: bool = False,
    compat: str | None = None,
) -> AsyncIterator[tuple[Turn, dict[str, Any]]]:
    """A turn of the session, and what to call `runs.run` with for it. A session that is not there is made.

    Args:
        name: the session's id, or its alias among those of `agent`.
        target: what to run; by default the agent whose session it is.
        keep: false: the session stays as it is; None for what it says itself, then for what the settings say.
        model: for this turn and those after it.
        wait, on_wait: see `Sessions.turn`.
    """
    stored, made = await _stored(root, caller, name, agent)
    if target is not None and stored.agent != agent:
        of = f"agent '{stored.agent}'" if stored.agent is not None else "no agent (callboard ask)"
        raise UsageError(f"session '{stored.label}' is one of {of}, so '{agent or 'ask'}' can't go on with it")
    turn: Turn | None = None
    try:
        async with root.sessions.turn(caller, stored.id, agent=stored.agent, wait=wait, on_wait=on_wait) as turn:
            turn.keeps = _keeps(turn.session, root, keep)
            playing = playing_of(root, turn, target, strict=strict, compat=compat)
            given = variables_of(playing, turn, variables)
            if model:
                turn.session.model = model
            yield (
                turn,
                {
                    "target": playing,
                    "model": turn.session.model,
                    "variables": given,
                    "history": turn.history,
                    "on_history": turn.keep,
                },
            )
    finally:
        if made and (turn is None or not turn.keeps or not turn.session.messages):
            with root.kernel.shield(FORGET_WITHIN):
                await _forget(root, stored)


async def round_off(root: Root, turn: Turn, target: Loaded | Agent, prompt: str, *, compress: bool = True) -> bool:
    """After a turn that brought something: the session gets a title, and is shortened if it has become long.

    Returns:
        Whether it was shortened.
    """
    if not turn.keeps or not turn.dirty:
        return False
    if turn.session.title is None:
        turn.session.title = first_words(prompt) or None
    return compress and await _shorten(root, turn, target)


async def keep_temporary(root: Root, turns: list[Said], *, agent: str | None, model: str | None) -> Stored:
    """Keep what was said in a session without a name; a model finds one."""
    session = Session(model=model, messages=messages_of(turns))
    session.title = await titled(root, session, model)
    alias = automatic_alias(session.title)
    return await trio.to_thread.run_sync(root.sessions.store.create, agent, alias, session)


def agent_of(target: Loaded | Agent) -> str | None:
    """Whose sessions a target's are; those of an agent without a file are nobody's."""
    if isinstance(target, Agent) or (isinstance(target, LoopAgent) and target.directory is None):
        return None
    return target.name.replace("/", "_")


async def _stored(root: Root, caller: Caller | None, name: str, agent: str | None) -> tuple[Stored, bool]:
    """The session, and whether it was made just now."""
    store = root.sessions.store
    if as_id(name) is None and await trio.to_thread.run_sync(store.resolve_alias, name, agent) is None:
        if caller is not None:
            caller.need("write:sessions")
        made: list[bool] = []

        def initial() -> Session:
            made.append(True)
            return Session()

        def make() -> Stored:
            return store.open_or_create_by_alias(name, agent, initial, caller=caller)

        stored = await trio.to_thread.run_sync(make)
        return stored, bool(made)
    return await root.sessions.get(caller, name, agent=agent), False


def playing_of(
    root: Root, turn: Turn, target: Any = None, *, strict: bool = False, compat: str | None = None
) -> Loaded | Agent:
    """What runs in a session: `target`, else the agent whose session it is, else a model without one."""
    wanted = target if target is not None else turn.stored.agent
    session = turn.session
    if wanted is None:
        return _sampled(Agent(name="ask", instructions=system_of(session), can_ask_user=False), session)
    if isinstance(wanted, Agent):
        return _sampled(wanted, session)
    if not isinstance(wanted, GraphAgent | LoopAgent | WorkflowAgent):
        found = find(wanted, config_dir=root.config_dir)
        wanted = read(found, root.config_dir, strict=strict, compat=compat, shelf=root.shelf)
    if isinstance(wanted, LoopAgent):
        return msgspec.structs.replace(wanted, agent=_sampled(wanted.agent, session))
    return wanted


def _sampled(agent: Agent, session: Session) -> Agent:
    chosen = {key: value for key in ("temperature", "top_p") if (value := getattr(session, key)) is not None}
    return msgspec.structs.replace(agent, **chosen) if chosen else agent


def variables_of(target: Loaded | Agent, turn: Turn, given: Mapping[str, str] | None) -> dict[str, str]:
    """The session's values of what the agent still declares, and what was given now."""
    if isinstance(target, WorkflowAgent):
        return dict(given or {})
    if isinstance(target, GraphAgent):
        declared = target.graph.variables
    else:
        declared = (target.agent if isinstance(target, LoopAgent) else target).variables
    names = {variable.name for variable in declared}
    values = turn.variables(given)
    return {name: value for name, value in values.items() if name in names or name in (given or {})}


def _keeps(session: Session, root: Root, wanted: bool | None) -> bool:
    """Whether what is said is kept: a session with a name is, unless somebody says no."""
    wishes = (wanted, session.save_session, root.settings.other.get("save_session"))
    return next((wish for wish in wishes if wish is not None), True) is not False


async def _shorten(root: Root, turn: Turn, target: Loaded | Agent) -> bool:
    agent = target.agent if isinstance(target, LoopAgent) else target if isinstance(target, Agent) else None
    threshold = threshold_of(turn.session, None if agent is None else agent.compression_threshold, root.settings)
    if not too_long(turn.session, threshold):
        return False
    try:
        return await compressed(root, turn.session, None if agent is None else agent.summarization_model or agent.model)
    except ShuttingDown:
        raise
    except CallboardError as error:
        root.sessions.store.warn(f"session '{turn.stored.label}' could not be shortened and stays as it is: {error}")
        return False


async def _forget(root: Root, stored: Stored) -> None:
    """A session that was made for a turn which brought nothing."""
    try:
        await root.sessions.delete(None, stored.id)
    except CallboardError:
        return  # somebody else works with it already
