"""Who in a run speaks for it: the agent that was named, but not those that it has working for it.

The text of a graph or a workflow is what comes out at its end. Its nodes are not its voice, whatever their models say.
"""

from __future__ import annotations

from .wire import Wire


class Speaker:
    """Which events of a run are its own agent's.

    Attributes:
        actor: the path of that agent's actor; "" for a graph, a workflow, or as long as nothing has begun.
    """

    def __init__(self) -> None:
        self.actor = ""
        self._dialect = ""

    def notice(self, event: Wire) -> None:
        """To be told every event, in order, before it is asked about."""
        if event.kind == "run.started":
            self._dialect = event.data.get("dialect", "")
        elif event.kind == "agent.started" and self._dialect == "agent" and not self.actor:
            self.actor = event.actor

    @property
    def is_agent(self) -> bool:
        """Whether somebody speaks before the end."""
        return self._dialect == "agent"

    def says(self, event: Wire) -> bool:
        """Whether it is a model's event, and the model is our agent's."""
        return bool(self.actor) and event.actor == self.actor

    def calls(self, event: Wire) -> bool:
        """Whether it is a tool call's event, and the call is our agent's; in a graph all calls are."""
        return bool(event.id) and (not self.is_agent or event.parent == self.actor)
