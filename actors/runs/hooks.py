"""The parts of a run's request that are no data: callbacks, Python functions, objects of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ...protocol.chat import Turn
from ...protocol.events import Event
from ..work.agent.todo import TodoList
from ..work.tools.tool import Tool
from .target import Loaded


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """See the module.

    Attributes:
        loaded: the request's target as it was loaded before; None to load it.
        tools: Python functions that the agents of the run may call, as tools.
        on_event: called with every event of the run, in order, in the run's tasks; must be quick.
        on_history: called once with what was said, the request's `history` included: at the end of an LLM agent's run,
            whatever ended it, if the model has said something; of other runs the prompt and the output, if they are
            done.
        todos: the todo list that an agent with `auto_continue` goes on with; the run changes it.
    """

    loaded: Loaded | None = None
    tools: tuple[Tool, ...] = ()
    on_event: Callable[[Event], None] | None = None
    on_history: Callable[[Sequence[Turn]], None] | None = None
    todos: TodoList | None = None


NO_HOOKS = Hooks()
