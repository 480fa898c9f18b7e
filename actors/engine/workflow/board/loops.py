"""Gates of loops: nodes that say nothing until a number of visits, or a time, is over.

A gate's memory lasts as long as the run of the graph that it stands in: a subgraph that is run again begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from .....protocol.workflow.model import LoopCounterConfig, LoopTimerConfig
from ..messages import Message
from ..rules import Rules

_SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0}


class Gate(msgspec.Struct):
    """What a gate remembers.

    Attributes:
        visits: since it last began to count.
        since: when its time began; None before the first visit.
        spoken: whether it has ever said its message.
    """

    visits: int = 0
    since: float | None = None
    spoken: bool = False


def counted(config: LoopCounterConfig, gate: Gate) -> tuple[Message, ...]:
    """What a loop_counter says at this visit."""
    gate.visits += 1
    if gate.visits < config.max_iterations:
        return ()
    if config.reset_on_emit:
        gate.visits = 0
    return (_said(config.message or f"Loop limit reached ({config.max_iterations})"),)


def timed(
    config: LoopTimerConfig, gate: Gate, inputs: Sequence[Message], clock: Callable[[], float], rules: Rules
) -> tuple[Message, ...]:
    """What a loop_timer says at this visit: nothing or its message; a passthrough its inputs or, once, its message."""
    now = clock()
    if gate.since is None:
        gate.since = now
    over = now - gate.since >= config.max_duration * _SECONDS[config.duration_unit]
    if config.passthrough and (gate.spoken or not over):
        return tuple(inputs)
    if not over:
        return ()
    if config.reset_on_emit and (rules.timers_start_anew or not gate.spoken):
        gate.since = now
    gate.spoken = True
    return (_said(config.message or f"Time limit reached ({config.max_duration} {config.duration_unit})"),)


def _said(text: str) -> Message:
    return Message(role="assistant", content=text)
