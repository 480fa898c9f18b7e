"""Gates of loops: nodes without output until a number of visits or a time is reached.

A gate's state lasts for one run of its graph: a subgraph that runs again starts with new gates.
"""

from __future__ import annotations

from collections.abc import Sequence

from .....protocol.workflow.model import LoopCounterConfig, LoopTimerConfig
from .....protocol.workflow_messages import Gate
from ..messages import Message
from ..rules import WorkflowRules

_SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0}


def counted(config: LoopCounterConfig, gate: Gate) -> tuple[tuple[Message, ...], Gate]:
    """Return the output of a loop_counter at this visit, and its new state."""
    visits = gate.visits + 1
    if visits < config.max_iterations:
        return (), Gate(visits)
    text = config.message or f"Loop limit reached ({config.max_iterations})"
    return (Message(role="assistant", content=text),), Gate(0 if config.reset_on_emit else visits)


def timed(
    config: LoopTimerConfig, gate: Gate, inputs: Sequence[Message], now: float, rules: WorkflowRules
) -> tuple[tuple[Message, ...], Gate]:
    """Return the output of a loop_timer at this visit, and its new state.

    Before the time is over the output is empty, or the inputs for a passthrough. Afterwards it is the timer's
    message, which a passthrough outputs only once.
    """
    since = now if gate.since is None else gate.since
    over = now - since >= config.max_duration * _SECONDS[config.duration_unit]
    if config.passthrough and (gate.spoken or not over):
        return tuple(inputs), Gate(since=since, spoken=gate.spoken)
    if not over:
        return (), Gate(since=since, spoken=gate.spoken)
    if config.reset_on_emit and (rules.timers_start_anew or not gate.spoken):
        since = now
    text = config.message or f"Time limit reached ({config.max_duration} {config.duration_unit})"
    return (Message(role="assistant", content=text),), Gate(since=since, spoken=True)
