"""Callboard runs many LLM agents, written in YAML, in one supervised Python process.

    import callboard, trio

    outcome = trio.run(callboard.run, "agents/researcher", "What is a callboard?")
    print(outcome.output)

Public is what is listed here, and in the modules `callboard.events`, `callboard.errors`, `callboard.chat` and
`callboard.testing`; docs/python-api.md explains it. The packages `actors`, `supervisors`, `protocol` and `cli` are
private: their names may change in any version. Names are imported when they are first used, so that `import callboard`
costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .protocol.version import VERSION

if TYPE_CHECKING:
    from . import chat as chat
    from . import errors as errors
    from . import events as events
    from .actors.front.telemetry.attach import telemetry
    from .actors.front.telemetry.event_log import log_events
    from .actors.runs.config import Config
    from .actors.runs.python_agent import Agent
    from .actors.runs.python_graph import Graph
    from .actors.runs.rerun.fork import fork
    from .actors.runs.rerun.replay import replay
    from .actors.runs.run import RunOptions, resume, run, run_sync
    from .actors.runs.run_stream import RunStream
    from .actors.runs.runtime import Root
    from .actors.runs.target import GraphAgent, LoopAgent, WorkflowAgent, load, validate
    from .actors.work.middleware import CallNext, Middleware
    from .actors.work.models.python_model import Model, ModelPiece
    from .actors.work.tools.functions import Context, function_tool, tool
    from .protocol.errors import CallboardError
    from .protocol.events import Event
    from .protocol.kernel.questions import Answer, Question
    from .protocol.mcp.config import Server
    from .protocol.outcome import Outcome, OutcomeError
    from .protocol.problems import Problem
    from .protocol.requests import Limits


__version__ = VERSION

_HOMES = {
    "Agent": ".actors.runs.python_agent",
    "Answer": ".protocol.kernel.questions",
    "CallNext": ".actors.work.middleware",
    "CallboardError": ".protocol.errors",
    "Context": ".actors.work.tools.functions",
    "Config": ".actors.runs.config",
    "Event": ".protocol.events",
    "Graph": ".actors.runs.python_graph",
    "GraphAgent": ".actors.runs.target",
    "Limits": ".protocol.requests",
    "LoopAgent": ".actors.runs.target",
    "Middleware": ".actors.work.middleware",
    "Model": ".actors.work.models.python_model",
    "ModelPiece": ".actors.work.models.python_model",
    "Outcome": ".protocol.outcome",
    "OutcomeError": ".protocol.outcome",
    "Problem": ".protocol.problems",
    "Question": ".protocol.kernel.questions",
    "Root": ".actors.runs.runtime",
    "RunOptions": ".actors.runs.run",
    "RunStream": ".actors.runs.run_stream",
    "Server": ".protocol.mcp.config",
    "WorkflowAgent": ".actors.runs.target",
    "fork": ".actors.runs.rerun.fork",
    "function_tool": ".actors.work.tools.functions",
    "load": ".actors.runs.target",
    "log_events": ".actors.front.telemetry.event_log",
    "replay": ".actors.runs.rerun.replay",
    "resume": ".actors.runs.run",
    "run": ".actors.runs.run",
    "run_sync": ".actors.runs.run",
    "telemetry": ".actors.front.telemetry.attach",
    "tool": ".actors.work.tools.functions",
    "validate": ".actors.runs.target",
}

__all__ = [  # noqa: RUF022 - in the order of docs/python-api.md
    "run",
    "run_sync",
    "resume",
    "fork",
    "replay",
    "load",
    "validate",
    "Agent",
    "Graph",
    "function_tool",
    "tool",
    "Context",
    "Model",
    "ModelPiece",
    "Middleware",
    "CallNext",
    "telemetry",
    "log_events",
    "Root",
    "RunStream",
    "RunOptions",
    "Config",
    "Server",
    "Limits",
    "Outcome",
    "Event",
    "Question",
    "Answer",
    "Problem",
    "GraphAgent",
    "LoopAgent",
    "WorkflowAgent",
    "CallboardError",
    "OutcomeError",
]


_MODULES = ("chat", "errors", "events")
"""Public modules, imported at their first use. `callboard.testing` is imported by name: it needs pytest."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'callboard' has no attribute '{name}'")
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"})
