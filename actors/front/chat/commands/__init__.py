"""Chat commands, a module per family. On import by `load`, each registers its commands in `table`."""

from __future__ import annotations

from types import ModuleType

from ..table import COMMANDS


def load() -> tuple[ModuleType, ...]:
    """Register every command, in the order of the help."""
    from . import (
        agent,
        agent_looking,
        attaching,
        deleting,
        editing,
        files,
        history,
        leaving,
        looking,
        rag,
        reporting,
        resuming,
        role,
        session,
        settings,
        sharing,
        signing_in,
        stepping,
        trusting,
        vault,
        watching,
    )

    talking = settings, role, session, agent, agent_looking, rag, files, history, resuming
    families = (
        looking,
        *talking,
        reporting,
        stepping,
        attaching,
        watching,
        trusting,
        editing,
        signing_in,
        vault,
        deleting,
        sharing,
        leaving,
    )
    places = {module.__name__: place for place, module in enumerate(families)}
    in_order = sorted(COMMANDS.values(), key=lambda each: places[each.play.__module__])
    COMMANDS.clear()
    COMMANDS.update((each.name, each) for each in in_order)
    return families
