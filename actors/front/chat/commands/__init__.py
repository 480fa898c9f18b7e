"""Chat commands, a module per family, named after its main command.

On import by `load`, each module registers its commands in `command_line.COMMANDS`. A command gets a `ChatLine`: its
arguments, its chat and the client that sent it. The package may import all of `chat` but `execution` and
`methods`, which import it.
"""

from __future__ import annotations

from types import ModuleType

from ..command_line import COMMANDS


def load() -> tuple[ModuleType, ...]:
    """Register every command, in the order of the help."""
    from . import (
        agent,
        credentials,
        delete,
        files,
        history,
        info,
        rag,
        reports,
        resume,
        role,
        runs,
        session,
        settings,
        sharing,
        tools,
    )

    conversation = settings, role, session, agent, rag, files, history, resume
    families = (info, *conversation, reports, runs, tools, credentials, delete, sharing)
    places = {module.__name__: place for place, module in enumerate(families)}
    in_order = sorted(COMMANDS.values(), key=lambda each: places[each.play.__module__])
    COMMANDS.clear()
    COMMANDS.update((each.name, each) for each in in_order)
    return families
