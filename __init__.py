"""Callboard runs many LLM agents, written in YAML, in one supervised Python process.

    import callboard, trio

    outcome = trio.run(callboard.run, "agents/researcher", "What is a callboard?")
    print(outcome.output)

Everything public is listed here; docs/python-api.md explains it. Names are imported when they are first used, so that
`import callboard` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .protocol.version import VERSION

if TYPE_CHECKING:
    from .actors.front.telemetry.attach import telemetry
    from .actors.runs.rerun.fork import fork
    from .actors.runs.rerun.replay import replay
    from .actors.runs.run import resume, run, run_sync
    from .actors.runs.run_stream import RunStream
    from .actors.runs.runtime import Root
    from .actors.runs.target import GraphAgent, LoopAgent, WorkflowAgent, load, validate
    from .actors.work.tools.functions import function_tool, tool
    from .protocol.agent import Agent
    from .protocol.errors import CallboardError
    from .protocol.events import Event
    from .protocol.kernel.questions import Answer, Question
    from .protocol.outcome import Outcome
    from .protocol.problems import Problem
    from .protocol.requests import Limits


__version__ = VERSION

_HOMES = {
    "Agent": ".protocol.agent",
    "Answer": ".protocol.kernel.questions",
    "CallboardError": ".protocol.errors",
    "Event": ".protocol.events",
    "GraphAgent": ".actors.runs.target",
    "Limits": ".protocol.requests",
    "LoopAgent": ".actors.runs.target",
    "Outcome": ".protocol.outcome",
    "Problem": ".protocol.problems",
    "Question": ".protocol.kernel.questions",
    "Root": ".actors.runs.runtime",
    "RunStream": ".actors.runs.run_stream",
    "WorkflowAgent": ".actors.runs.target",
    "fork": ".actors.runs.rerun.fork",
    "function_tool": ".actors.work.tools.functions",
    "load": ".actors.runs.target",
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
    "function_tool",
    "tool",
    "telemetry",
    "Root",
    "RunStream",
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
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'callboard' has no attribute '{name}'")
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
