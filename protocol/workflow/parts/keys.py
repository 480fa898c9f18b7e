"""Keys of models: one that the file does not name never goes to an address that the file names."""

from __future__ import annotations

from ...source import Mapping, Path
from ..agents import Embedding
from ..model import AgentConfig
from .reading import WorkflowReading


def check_key(reading: WorkflowReading, model: AgentConfig | Embedding, config: Mapping, path: Path) -> None:
    """Warn where an address is named without a key, and a key that is known stays here."""
    withheld = reading.known.withheld
    if withheld is None or not model.base_url or model.api_key or "base_url" not in config.entries:
        return
    key = withheld(model.provider, model.base_url)
    if key:
        reading.report(
            "warning",
            "withheld_key",
            f"{model.base_url} is given no key: {key} goes to the provider's own address only",
            (*path, "base_url"),
            config.entries["base_url"].value,
            hint="name the key that it is to have: `api_key: ${NAME}`.",
        )
