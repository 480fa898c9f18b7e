"""A session that a client has open: its agent, its directory, its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .surroundings import Surroundings

if TYPE_CHECKING:
    from ....protocol.control.acp import Prompt
    from ...runs.root import Root
    from .prompting import Prompting

Json = Any

MODES = {"ask": "Ask first", "yes": "Allow all"}
"""Whether tools ask before they change something. `ask` is what the user's settings say."""

MODEL = "model"


class Opened:
    """See the module.

    Attributes:
        agent, model: who answers; None for no agent, and for what it says itself.
        around: what the client has brought.
        title: as the client knows it.
        mode: one of `MODES`.
        prompting: the prompt that is played now.
        arrived: prompts that came just now and have not begun.
        spent: what its prompts have cost here, in USD.
    """

    def __init__(self, agent: str | None, model: str | None, around: Surroundings, title: str | None = None) -> None:
        self.agent = agent
        self.model = model
        self.around = around
        self.title = title
        self.mode = "ask"
        self.prompting: Prompting | None = None
        self.arrived: list[Prompt] = []
        self._called_off: list[Prompt] = []
        self.spent = 0.0

    def cancel(self) -> None:
        """Cancel the client's prompts, also those not begun yet."""
        self._called_off += self.arrived
        self.arrived = []
        if self.prompting is not None:
            self.prompting.cancel()

    def was_cancelled(self, prompt: Prompt) -> bool:
        """Whether this prompt, which begins now, was called off before."""
        self.arrived = [each for each in self.arrived if each is not prompt]
        left = [each for each in self._called_off if each is not prompt]
        cancelled = len(left) < len(self._called_off)
        self._called_off = left
        return cancelled

    def state(self, root: Root) -> dict[str, Json]:
        """How it is set, and how it might be."""
        modes = [{"id": id, "name": name} for id, name in MODES.items()]
        return {"modes": {"currentModeId": self.mode, "availableModes": modes}, "configOptions": self.options(root)}

    def options(self, root: Root) -> list[Json]:
        """What may be chosen: the model."""
        settings = root.settings
        known = [
            f"{client.name or client.type}:{model.name}"
            for client in settings.clients
            for model in client.models
            if model.type == "chat"
        ]
        models = list(dict.fromkeys(id for id in (settings.model, self.model, *known) if id))
        option = {
            "id": MODEL,
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": self.model or "",
            "options": [{"value": "", "name": "As the agent says"}, *({"value": id, "name": id} for id in models)],
        }
        return [option]
