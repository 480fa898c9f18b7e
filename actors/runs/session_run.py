"""Execution of an agent in a session: it starts from the session's history and appends its messages to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...protocol.agent import Agent
from ...protocol.chat import Turn as Said
from ...protocol.errors import CallboardError, NotFound, ShuttingDown, UsageError
from ...protocol.journal import InSession
from ...protocol.mcp.config import split
from ...protocol.outcome import Outcome
from ...protocol.requests import RunRequest
from ...protocol.role import role_of_prompt
from ...protocol.session import Session, messages_of, system_of, turns_of
from ..work.agent.history import estimate
from ..work.roles import find
from .begin import perform
from .loading import NO_HOOKS, RunCallbacks
from .sessions.names import as_id
from .sessions.roles import change_role, is_empty, name_of, prompt_of
from .sessions.store import new_meta
from .sessions.summary import WITHOUT_AGENT, automatic_alias, compressed, first_words, titled, too_long
from .sessions.turn import StoredTurn
from .target import GraphAgent, Loaded, LoopAgent, WorkflowAgent
from .trace_context import conversation

if TYPE_CHECKING:
    from pathlib import Path

    from ...protocol.control.caller import Caller
    from ...protocol.settings import Settings
    from .root import Root
    from .sessions.store import Stored

FORGET_WITHIN = 2.0

_THINKING = ("reasoning_effort", "thinking_budget")
_SAMPLING = ("temperature", "top_p", *_THINKING)
_GOING_ON = ("auto_continue", "max_auto_continues", "inject_todo_instructions", "continuation_prompt")


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """Session turn, with the request and the hooks of the run that is executed in it."""

    turn: StoredTurn
    request: RunRequest
    hooks: RunCallbacks

    @property
    def agent(self) -> Agent | None:
        """The LLM agent that answers in this turn; None for a graph or a workflow."""
        target = self.hooks.loaded or self.request.target
        return target.agent if isinstance(target, LoopAgent) else target if isinstance(target, Agent) else None


async def say(
    root: Root,
    caller: Caller | None,
    name: str,
    request: RunRequest,
    hooks: RunCallbacks = NO_HOOKS,
    *,
    agent: str | None = None,
    compress: bool = True,
    keep: bool | None = None,
    new_role: str | None = None,
    wait: float = 0.0,
    on_wait: Callable[[CallboardError], None] | None = None,
) -> Outcome:
    """Run an agent in a session and wait for its end: see `turn_in_session`.

    `save_error` of the outcome reports a session file that could not be written.

    Args:
        compress: whether the session is compressed after the turn if it has become long.
    """
    acting = turn_in_session(
        root, caller, name, request, hooks, agent=agent, keep=keep, new_role=new_role, wait=wait, on_wait=on_wait
    )
    outcome: Outcome | None = None
    turn: StoredTurn | None = None
    try:
        async with acting as act:
            turn = act.turn
            outcome = await perform(act.request, act.hooks, root)
            turn.spend(sum(used.cost for used in outcome.usage.values()))
            await round_off(root, act, compress=compress)
    # An answer that was paid for is returned even if the session's file cannot be written.
    except CallboardError as error:
        if outcome is None or turn is None or turn.unkept is not error:
            raise
        outcome.save_error = f"the answer could not be saved in session '{turn.stored.label}': {error}"
        outcome.exit_code = outcome.exit_code or 1
    return outcome


@asynccontextmanager
async def turn_in_session(
    root: Root,
    caller: Caller | None,
    name: str,
    request: RunRequest,
    hooks: RunCallbacks = NO_HOOKS,
    *,
    agent: str | None = None,
    keep: bool | None = None,
    new_role: str | None = None,
    wait: float = 0.0,
    on_wait: Callable[[CallboardError], None] | None = None,
) -> AsyncIterator[Act]:
    """Context manager for a turn of the session, with the request as it runs there. A missing session is created.

    A session created for this turn is deleted if the turn adds nothing.

    Args:
        name: the session's id, or its alias among the sessions of `agent`.
        request: its target is "" for the agent of the session. Its model and role apply to this turn and later ones.
        new_role: role of a session without messages, unless it has one.
        keep: False to leave the session as it is; None for its own `save_session`, then that of the settings.
        wait, on_wait: see `Sessions.turn`.
    """
    turn: StoredTurn | None = None
    before = conversation.get()
    made: Stored | None = None
    try:
        async with AsyncExitStack() as taken:
            while turn is None:
                stored, new = await _stored(root, caller, name, agent)
                made = stored if new else None
                if (request.target or hooks.loaded) and stored.agent != agent:
                    of = f"agent '{stored.agent}'" if stored.agent is not None else "no agent (callboard ask)"
                    raise UsageError(
                        f"session '{stored.label}' belongs to {of}, so '{agent or 'ask'}' can't continue it"
                    )
                taking = root.sessions.turn(caller, stored.id, agent=stored.agent, wait=wait, on_wait=on_wait)
                try:
                    turn = await taken.enter_async_context(taking)
                except NotFound:
                    # An id names one session. With an alias, the creator has deleted the session because its turn added
                    # nothing: create it again.
                    if as_id(name) is not None:
                        raise
            turn.keeps = _keeps(turn.session, hooks.settings or root.settings, keep)
            act = await _acted(root, turn, request, hooks, new_role)
            conversation.set(stored.id)
            beside = root.sessions.store.path(stored.id, stored.agent).parent
            yield _with_results(act, beside / "results") if turn.keeps else act
    finally:
        conversation.set(before)
        said = turn is not None and turn.keeps and (turn.session.messages or turn.is_left())
        if made is not None and not said:
            with root.kernel.shield(FORGET_WITHIN):
                await _forget(root, made)


@asynccontextmanager
async def in_memory(
    root: Root, stored: Stored, request: RunRequest, hooks: RunCallbacks = NO_HOOKS
) -> AsyncIterator[Act]:
    """Open a turn in a session without a file; the messages of the turn stay in `stored.session`."""
    turn = StoredTurn(stored)
    turn.keeps = False
    yield await _acted(root, turn, request, hooks, None)


async def _acted(root: Root, turn: StoredTurn, request: RunRequest, hooks: RunCallbacks, new_role: str | None) -> Act:
    request = await _with_role(root, turn, request, hooks, new_role)
    target = await _target(root, turn, request, hooks)
    if request.model:
        turn.session.model = request.model
    return _act(turn, target, request, hooks)


def _with_results(act: Act, results: Path) -> Act:
    return msgspec.structs.replace(act, hooks=msgspec.structs.replace(act.hooks, results=results))


def _act(turn: StoredTurn, target: Loaded | Agent, request: RunRequest, hooks: RunCallbacks) -> Act:
    named, found = (target, None) if isinstance(target, Agent) else (target.file, target)
    return Act(
        turn=turn,
        request=msgspec.structs.replace(
            request,
            target=named,
            model=turn.session.model,
            variables=variables_of(target, turn, request.variables),
            history=turn.history,
            default_tools=request.default_tools
            and turn.session.enabled_tools is None
            and turn.session.enabled_mcp_servers is None,
        ),
        hooks=heard_in(turn, msgspec.structs.replace(hooks, loaded=found)),
    )


def heard_in(turn: StoredTurn, hooks: RunCallbacks) -> RunCallbacks:
    """Return hooks that store the run's messages, todo list and labels in this turn.

    If the turn is stored, a durable run of it also ends only once the session's file has its messages.
    """
    hooks = msgspec.structs.replace(hooks, on_history=turn.keep, todos=turn.todos, labels=turn)
    if not turn.keeps:
        return hooks
    session, holds, further = InSession(turn.stored.id, turn.stored.agent, len(turn.history)), turn.holds, hooks.holds
    if further is not None:  # The run is over when every holder has reported it.

        def holds(run: str, over: Callable[[], None]) -> None:
            turn.holds(run, partial(further, run, over))

    return msgspec.structs.replace(hooks, session=session, holds=holds, on_kept=turn.is_durable_turn)


class RoundedOff(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to a session after its turn.

    Attributes:
        compressed: True if the session was compressed.
        tokens, tokens_now: estimated tokens of a compressed session's messages, before and after.
        autonamed: name that a model chose for the session, if any.
    """

    compressed: bool = False
    tokens: int = 0
    tokens_now: int = 0
    autonamed: str | None = None


async def round_off(
    root: Root, act: Act, *, compress: bool = True, before_shortening: Callable[[], None] = lambda: None
) -> RoundedOff:
    """After a turn that added messages, give the session a title, and compress it if it has become long.

    For an unnamed session with `save_session: true`, a model chooses title and name.
    """
    turn = act.turn
    if not turn.keeps or not turn.dirty:
        return RoundedOff()
    named = None
    if turn.session.title is None:
        if turn.stored.alias is None and _wish(turn.session, act.hooks.settings or root.settings) is True:
            named = await _name(root, turn)
        else:
            turn.session.title = first_words(act.request.prompt) or None
    if not compress:
        return RoundedOff(autonamed=named)
    tokens = estimate(turns_of(turn.session))
    if not await shorten(root, turn, act.agent, act.hooks.settings, before=before_shortening):
        return RoundedOff(autonamed=named)
    now = estimate(turns_of(turn.session))
    return RoundedOff(compressed=True, tokens=tokens, tokens_now=now, autonamed=named)


async def _name(root: Root, turn: StoredTurn) -> str | None:
    store, stored = root.sessions.store, turn.stored
    stored.session.title = await titled(root, stored.session, stored.agent, None)
    alias = automatic_alias(stored.session.title)
    try:
        await trio.to_thread.run_sync(store.rename, stored.id, alias, stored.agent)
    except CallboardError as error:
        store.warn(f"session '{stored.label}' could not be named: {error}")
        return None
    stored.alias = alias
    return alias


async def keep_temporary(
    root: Root, turns: list[Said], *, agent: str | None, model: str | None, role: str | None, role_prompt: str | None
) -> Stored:
    """Store a conversation as a session whose name a model chooses."""
    session = Session(model=model, messages=messages_of(turns))
    change_role(session, role, role_prompt)
    return await keep_unnamed(root, session, agent=agent, model=model)


async def keep_unnamed(
    root: Root, session: Session, *, agent: str | None, model: str | None, caller: Caller | None = None
) -> Stored:
    """Store a session that has neither file nor name. `model` chooses its title; the words of the title become its
    name.
    """
    session.meta = new_meta(caller)
    session.title = await titled(root, session, agent, model)
    alias = automatic_alias(session.title)
    return await trio.to_thread.run_sync(partial(root.sessions.store.create, agent, alias, session, caller=caller))


def agent_of(target: Loaded | Agent) -> str | None:
    """Return the agent whose sessions a target uses; None for an agent without a file."""
    if isinstance(target, Agent) or (isinstance(target, LoopAgent) and target.directory is None):
        return None
    return target.name.replace("/", "_")


async def _stored(root: Root, caller: Caller | None, name: str, agent: str | None) -> tuple[Stored, bool]:
    """Return the session, and whether it was created by this call."""
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


async def _target(root: Root, turn: StoredTurn, request: RunRequest, hooks: RunCallbacks) -> Loaded | Agent:
    """Return the target of a turn: that of the request, else the session's agent, else a bare model."""
    wanted = request.target or turn.stored.agent
    session = turn.session
    if hooks.loaded is None and wanted is None:
        wanted = Agent(name=WITHOUT_AGENT, can_ask_user=False)
    if hooks.loaded is None and isinstance(wanted, Agent):
        if not wanted.instructions:
            wanted = msgspec.structs.replace(wanted, instructions=system_of(session))
        settings = hooks.settings or root.settings
        going_on = {} if request.in_role else settings.other  # A role decides instead of the settings.
        served = settings.mcp_server_support
        return with_session(wanted, session, going_on, mcp=served, default_tools=request.default_tools)
    loaded = await root.loader.load(msgspec.structs.replace(request, target=wanted or ""), hooks)
    if isinstance(loaded, LoopAgent):
        return msgspec.structs.replace(loaded, agent=sampled(loaded.agent, session))
    return loaded


def sampled(agent: Agent, session: Session) -> Agent:
    """Return the agent with the session's sampling and reasoning options."""
    chosen = {key: value for key in _SAMPLING if (value := getattr(session, key)) is not None}
    # Effort and budget are set together: the agent's value of one must not be combined with the session's value of the
    # other.
    if not chosen.keys().isdisjoint(_THINKING):
        chosen |= {key: getattr(session, key) for key in _THINKING}
    return msgspec.structs.replace(agent, **chosen) if chosen else agent


def with_session(
    agent: Agent, session: Session, settings: Mapping[str, Any], *, mcp: bool, default_tools: bool = False
) -> Agent:
    """Return an agent without a file, with the tools and the auto-continue options of the session.

    `settings` have defaults for the auto-continue options.

    Args:
        mcp: whether MCP servers are used at all.
        default_tools: the agent's tools come from the settings, and tools named by the session replace them.
    """
    chosen: dict[str, Any] = {}
    for key in _GOING_ON:
        own, of_settings = getattr(session, key), settings.get(key)
        value = own if own is not None else of_settings
        if value is not None:
            chosen[key] = value
    if session.enabled_tools is not None and (default_tools or not agent.global_tools):
        chosen["global_tools"] = tuple(split(session.enabled_tools))
    if session.enabled_mcp_servers is not None and (default_tools or not agent.mcp_servers):
        chosen["mcp_servers"] = tuple(split(session.enabled_mcp_servers)) if mcp else ()
    return sampled(msgspec.structs.replace(agent, **chosen), session)


async def _with_role(
    root: Root, turn: StoredTurn, request: RunRequest, hooks: RunCallbacks, new_role: str | None
) -> RunRequest:
    """Return the request in its role, which becomes the session's role; else in the session's role if no agent answers
    there.
    """
    session, agent = turn.session, turn.stored.agent
    if new_role and not request.in_role and session.role_name is None and is_empty(session):
        request = msgspec.structs.replace(request, role=new_role)
    if request.in_role:
        if agent is not None:
            raise UsageError(f"a role can't be used in this session, because agent '{agent}' answers in it")
        if request.role is not None and request.role != session.role_name:
            model = request.model or session.model
            # Checked first: a misspelt role must not be stored in the session.
            await root.loader.threaded(partial(_check_role, request.role, model, root, hooks))
        if request.role_prompt is not None:
            role_of_prompt(request.role_prompt)  # Checked first: a prompt that is too long must not be stored.
        if (request.role, request.role_prompt) != (session.role_name, prompt_of(session)):
            change_role(session, request.role, request.role_prompt)
            turn.touch()
        return request
    if agent is not None:
        return request  # Loki's files may have a role in the session of an agent; the agent answers by its own file.
    prompt = prompt_of(session)
    return msgspec.structs.replace(request, role=None if prompt else name_of(session), role_prompt=prompt)


def _check_role(name: str, model: str | None, root: Root, hooks: RunCallbacks) -> None:
    """Raise as `find` does, and `Denied` if the role's model would be used and the caller may not use it."""
    role = find(name, root.config_dir)
    if hooks.check_model is not None and role.model and not model:
        hooks.check_model(role.model)


def variables_of(target: Loaded | Agent, turn: StoredTurn, given: Mapping[str, str]) -> dict[str, str]:
    """Return the session's values of variables that the agent declares, updated with those given for this turn."""
    if isinstance(target, WorkflowAgent):
        return dict(given)
    if isinstance(target, GraphAgent):
        declared = target.graph.variables
    else:
        declared = (target.agent if isinstance(target, LoopAgent) else target).variables
    names = {variable.name for variable in declared}
    values = turn.variables(given)
    return {name: value for name, value in values.items() if name in names or name in given}


def _keeps(session: Session, settings: Settings, wanted: bool | None) -> bool:
    """Return whether the turn is stored. A dry run is not; a named session is, unless an option says no."""
    return not settings.dry_run and (wanted if wanted is not None else _wish(session, settings)) is not False


def _wish(session: Session, settings: Settings) -> object:
    """Return `save_session` of the session, else of the settings; None if neither sets it."""
    return session.save_session if session.save_session is not None else settings.other.get("save_session")


async def shorten(
    root: Root,
    turn: StoredTurn,
    agent: Agent | None,
    settings: Settings | None = None,
    *,
    before: Callable[[], None] = lambda: None,
) -> bool:
    """Replace the session's messages by a summary if they have become long; return whether that was done.

    A failure to summarise is a warning, and the session stays as it is.

    Args:
        before: called before the model is asked, if the session is long.
    """
    of_agent = None if agent is None else agent.compression_threshold
    answering = turn.session.model or (None if agent is None else agent.model)
    if not await too_long(root, turn.session, of_agent, answering, settings or root.settings):
        return False
    before()
    try:
        model = None if agent is None else agent.summarization_model or agent.model
        return await compressed(root, turn.session, turn.stored.agent, model)
    except ShuttingDown:
        raise
    except CallboardError as error:
        root.sessions.store.warn(f"session '{turn.stored.label}' could not be shortened and stays as it is: {error}")
        return False


async def _forget(root: Root, stored: Stored) -> None:
    """Delete a session created for a turn that added nothing."""
    try:
        await root.sessions.delete(None, stored.id)
    except CallboardError:
        return  # Another turn uses the session already.
