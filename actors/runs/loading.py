"""Loader of a root's targets: in a thread, one at a time, cached until a file that was read changes.

All front ends share it. It loads one target at a time, because parsing YAML holds the GIL: with two such threads the
event loop would wait twice as long for it.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, final

import msgspec
import trio

from ...protocol.agent import Agent
from ...protocol.chat import Turn
from ...protocol.control.caller import LOCAL
from ...protocol.events import Event
from ...protocol.requests import RunRequest
from ..engine.graph.compat import MODES
from ..io.file_fingerprints import Stamp, recorded, settled, unchanged
from ..io.tenancy import environ
from ..work.agent.todo import TodoList
from ..work.playback import Playback
from ..work.tools.registry import ToolRegistry
from ..work.tools.tool import Tool
from ..work.variables import session_of
from .file_checks import check_listed
from .finding import find
from .target import GraphAgent, Loaded, LoopAgent, WorkflowAgent, read

if TYPE_CHECKING:
    from ...protocol.journal import InSession
    from ...protocol.settings import Settings
    from ..work.context import StandIn
    from ..work.hooks import Functions
    from ..work.labels.flow import Flow
    from ..work.middleware import Middleware
    from ..work.models.python_model import Model
    from ..work.models.recorder import Recorder
    from ..work.results import ResultType

MOST = 512
"""Maximum of cached targets."""

Key = tuple[str, str, bool, str | None, tuple[str, ...]]
T = TypeVar("T")


class RunCallbacks(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a run's request that are not data: callbacks, Python functions, and objects of this process.

    Attributes:
        loaded: the request's target, loaded already; None to load it.
        tools: Python functions that the agents of the run may call as tools.
        on_event: called with every event of the run, in order, in the run's tasks; must return quickly.
        on_history: called once with the conversation, including the request's `history`. For an LLM agent, at the end
            of its run, whatever ended it, if the model has replied. For other runs with the prompt and the output, if
            they succeed.
        results: directory for full results of tools that a conversation shortens; None for a directory of the run.
        owner: subject that owns the run.
        todos: todo list with which an agent with `auto_continue` starts; the run changes it.
        recorder: creates the recorder of a run's requests and replies from the run's id; None for no recording.
        settings: settings for this run in place of the root's; None for the root's.
        told: texts of problems that the caller was notified of. The run reports only new ones, and adds them.
        durable: True to journal the run, so that another process can resume it; None to do so if possible.
        resumed: True if the run is resumed and not new.
        by: front end that executes the run, for lists of durable runs; see `journal.About`.
        session: the session in which the run is a turn.
        holds: called with the id of a durable run and a function that marks it as over. The callee calls that function
            when all results of the run are on disk. None to mark the run at its end.
        on_kept: called when the run is durable, with a function that returns whether another process will continue it.
        playback: recording or replay of the run's effects; None for neither.
        hooks: Python functions that can change or refuse actions of the run, by event; see `work.hooks`.
        labels: source and store of the labels of the run's conversation; None for none.
        deps: value of `deps` in the context of the run's functions.
        result: type of the run's result; None for text, or for the type in the request's overrides.
        stand_in: function that answers in place of the run's models; None for the models.
        models: models made in Python, which files and agents of the run may name.
        middleware: functions around the run's requests to models, inside the middleware of the root.
        check_model: raises `Denied` if the caller may not use the model that a role names; None if all are allowed.
    """

    loaded: Loaded | None = None
    tools: tuple[Tool, ...] = ()
    on_event: Callable[[Event], None] | None = None
    on_history: Callable[[Sequence[Turn]], None] | None = None
    todos: TodoList | None = None
    results: Path | None = None
    owner: str = LOCAL.subject
    recorder: Callable[[str], Recorder] | None = None
    check_model: Callable[[str], None] | None = None
    settings: Settings | None = None
    told: set[str] | None = None
    durable: bool | None = False
    resumed: bool = False
    by: str = ""
    session: InSession | None = None
    labels: NotesLabels | None = None
    holds: Callable[[str, Callable[[], None]], None] | None = None
    on_kept: Callable[[Callable[[], bool]], None] | None = None
    playback: Playback | None = None
    hooks: Functions = {}
    deps: Any = None
    result: ResultType | None = None
    stand_in: StandIn | None = None
    models: Mapping[str, Model] = {}
    middleware: tuple[Middleware, ...] = ()

    @property
    def binds(self) -> bool:
        """True if only this process can execute the run, because it has callbacks or objects of this process."""
        names = (name for name in self.__struct_fields__ if name not in _FREE)
        return self.deps is not None or any(getattr(self, name) != getattr(NO_HOOKS, name) for name in names)


_FREE = ("loaded", "owner", "durable", "resumed", "by", "check_model", "deps")
"""Fields that another process fills in itself; and `deps`, an object of the program that may not be comparable."""


NO_HOOKS = RunCallbacks()


stand_ins: list[StandIn] = []
"""Test models that answer for all runs of the process (`stand_in`); the last one is used."""


def durable_by(flag: bool | None, settings: Settings) -> bool | None:
    """Return `RunCallbacks.durable` as a flag sets it, else as the settings do."""
    if flag is not None:
        return flag
    return None if settings.durable.by_default else False


class NotesLabels(Protocol):
    """Store of labels that outlives a run: a session."""

    def begins(self, flow: Flow) -> None:
        """Give a run the labels of the earlier conversation, and observe its own from now on."""
        ...


def is_made(loaded: Loaded | None) -> bool:
    """Return whether a program made the agent, instead of reading it from a file."""
    if isinstance(loaded, GraphAgent):
        return loaded.made
    return isinstance(loaded, LoopAgent) and loaded.directory is None


@final
class Loader:
    """Cache of loaded targets; see the module.

    Args:
        config_dir: the configuration directory, in which agents are found by name.
        registry: the global tools.
    """

    def __init__(self, config_dir: Path, registry: ToolRegistry) -> None:
        self._config_dir = config_dir
        self._registry = registry
        self._kept: OrderedDict[Key, tuple[Loaded, dict[Path, Stamp]]] = OrderedDict()
        self._lock = threading.Lock()
        self._one = trio.CapacityLimiter(1)

    async def threaded(self, work: Callable[[], T]) -> T:
        """Run a function that reads files in a thread, after earlier ones have finished."""
        return await trio.to_thread.run_sync(work, limiter=self._one)

    async def load(self, request: RunRequest, hooks: RunCallbacks) -> Loaded:
        """Return the agent or the workflow of a request. Raises as `loaded` does."""
        if hooks.loaded is not None:
            return hooks.loaded
        return await self.threaded(lambda: self.loaded(request, hooks))

    def loaded(self, request: RunRequest, hooks: RunCallbacks) -> Loaded:
        """Return the agent or the workflow of a request. Blocks; call it in a thread.

        Raises:
            UsageError, InvalidFile: the target does not exist, or has errors.
        """
        if hooks.loaded is not None:
            return hooks.loaded
        functions = tuple(tool.name for tool in hooks.tools)
        if isinstance(request.target, Agent):
            silent = request.compat in MODES and MODES[request.compat].missing_servers_are_silent
            return LoopAgent.of(request.target, check_listed(request.target, functions, self._registry, silent=silent))
        key = (request.target, _working_directory(), request.strict, request.compat, functions)
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and unchanged(kept[1]):
                self._kept.move_to_end(key)
                return kept[0]
            with recorded() as looked:
                found = self._read(request, functions)
            # The contents of a workflow also depend on variables and on the environment.
            if not isinstance(found, WorkflowAgent) and settled(looked):
                self._kept[key] = found, looked
                if len(self._kept) > MOST:
                    self._kept.popitem(last=False)
            return found

    def _read(self, request: RunRequest, functions: Sequence[str]) -> Loaded:
        assert isinstance(request.target, str)
        return read(
            find(request.target, config_dir=self._config_dir),
            self._config_dir,
            strict=request.strict,
            compat=request.compat,
            functions=functions,
            registry=self._registry,
            variables=request.variables,
        )


def _working_directory() -> str:
    """Return the working directory, to which relative paths refer; "" if it was deleted."""
    try:
        return os.getcwd()  # noqa: PTH109 - a text is wanted
    except FileNotFoundError:
        return ""


async def session_of_agent(loader: Loader, settings: Settings, request: RunRequest) -> str | None:
    """Return the name of the session in which an LLM agent always runs; see `session_of`."""
    found = await loader.load(request, NO_HOOKS)
    return session_of(found.agent, settings.other, environ()) if isinstance(found, LoopAgent) else None
