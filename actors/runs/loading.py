"""Loads the targets of a root: in a thread, one at a time, cached until one of the files that were read changes.

All front ends share it. One at a time, since reading YAML holds the interpreter's lock: two such threads would make
the event loop wait twice as long for its turn.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, final

import msgspec
import trio

from ...protocol.agent import Agent
from ...protocol.chat import Turn
from ...protocol.control.caller import LOCAL
from ...protocol.events import Event
from ...protocol.requests import RunRequest
from ..engine.graph.compat import MODES
from ..io.stamps import Stamp, recorded, settled, unchanged
from ..work.agent.todo import TodoList
from ..work.playback.playback import Playback
from ..work.tools.registry import ToolRegistry
from ..work.tools.tool import Tool
from .file_checks import check_listed
from .finding import find
from .target import Loaded, LoopAgent, WorkflowAgent, read

if TYPE_CHECKING:
    from ...protocol.journal import InSession
    from ...protocol.settings import Settings
    from ..work.hooks.hooks import Functions
    from ..work.models.recorder import Recorder

MOST = 512
"""Targets that are kept."""

Key = tuple[str, str, bool, str | None, tuple[str, ...]]
T = TypeVar("T")


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a run's request that are no data: callbacks, Python functions, objects of this process.

    Attributes:
        loaded: the request's target as it was loaded before; None to load it.
        tools: Python functions that the agents of the run may call, as tools.
        on_event: called with every event of the run, in order, in the run's tasks; must be quick.
        on_history: called once with what was said, the request's `history` included: at the end of an LLM agent's run,
            whatever ended it, if the model has said something; of other runs the prompt and the output, if they are
            done.
        results: the directory for whole results of tools that a conversation cuts; None for one that goes with the run.
        owner: the subject whose run it is.
        todos: the todo list that an agent with `auto_continue` goes on with; the run changes it.
        recorder: makes what keeps the requests of the run of this id and their replies; None to keep none.
        settings: what goes in the place of the root's settings for this run alone; None for those.
        told: texts of problems that the caller was told before: the run tells those alone that are new, and adds them.
        durable: what the run does is kept, so that another process can go on with it; None: where that can be kept.
        resumed: it goes on, and is not new.
        by: what has it played, for lists of durable runs; see `journal.About`.
        session: the session that it is a turn of.
        holds: given the id of a durable run and what says that it is over, to be called when all that it has brought is
            on disk elsewhere; None to say it at its end.
        on_kept: given, once the run is durable, what says whether it is left to another process.
        playback: what stands between the run and the world; None for nothing.
        hooks: Python functions that have a say in what the run does, by event; see `work.hooks`.
        check_model: raises `Denied` if the caller may not have this model, which a role names; None: all are allowed.
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
    holds: Callable[[str, Callable[[], None]], None] | None = None
    on_kept: Callable[[Callable[[], bool]], None] | None = None
    playback: Playback | None = None
    hooks: Functions = {}

    @property
    def binds(self) -> bool:
        """Whether only this process can play the run: what it calls, or what it tells of, is here."""
        names = (name for name in self.__struct_fields__ if name not in _FREE)
        return any(getattr(self, name) != getattr(NO_HOOKS, name) for name in names)


_FREE = ("loaded", "owner", "durable", "resumed", "by", "check_model")
"""Hooks that another process has by itself."""


NO_HOOKS = Hooks()


def durable_by(flag: bool | None, settings: Settings) -> bool | None:
    """`Hooks.durable`, as a flag says it, else as the settings do."""
    if flag is not None:
        return flag
    return None if settings.durable.by_default else False


@final
class Loader:
    """See the module.

    Args:
        config_dir: where agents have names.
        registry: the global tools.
    """

    def __init__(self, config_dir: Path, registry: ToolRegistry) -> None:
        self._config_dir = config_dir
        self._registry = registry
        self._kept: OrderedDict[Key, tuple[Loaded, dict[Path, Stamp]]] = OrderedDict()
        self._lock = threading.Lock()
        self._one = trio.CapacityLimiter(1)

    async def threaded(self, work: Callable[[], T]) -> T:
        """Do something that reads files in a thread, after what waits for that already."""
        return await trio.to_thread.run_sync(work, limiter=self._one)

    async def load(self, request: RunRequest, hooks: Hooks) -> Loaded:
        """The agent or the workflow that a request means. Raises as `loaded` does."""
        if hooks.loaded is not None:
            return hooks.loaded
        return await self.threaded(lambda: self.loaded(request, hooks))

    def loaded(self, request: RunRequest, hooks: Hooks) -> Loaded:
        """As `load`, in a thread already.

        Raises:
            UsageError, InvalidFile: there is no such target, or it has errors.
        """
        if hooks.loaded is not None:
            return hooks.loaded
        functions = tuple(tool.name for tool in hooks.tools)
        if isinstance(request.target, Agent):
            silent = request.compat in MODES and MODES[request.compat].missing_servers_are_silent
            return LoopAgent.of(request.target, check_listed(request.target, functions, self._registry, silent=silent))
        key = (request.target, _here(), request.strict, request.compat, functions)
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and unchanged(kept[1]):
                self._kept.move_to_end(key)
                return kept[0]
            with recorded() as looked:
                found = self._read(request, functions)
            # What a workflow says depends on variables and on the environment, too.
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


def _here() -> str:
    """The working directory, by which relative paths are found; "" if there is none."""
    try:
        return os.getcwd()  # noqa: PTH109 - a text is wanted
    except FileNotFoundError:
        return ""
