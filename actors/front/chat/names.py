"""The names of what there is, with a word about each: roles, agents, sessions, bases, macros, models, files.

What is read of a directory is kept until the directory changes. Who lacks the scope to read of them finds none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ....protocol.errors import CallboardError
from ...runs.finding import built_in_agents, description_of, own_agents
from ...runs.sessions.disk.places import scope_of
from ...work.knowledge import registry
from ...work.macros.files import FILES as MACROS
from ...work.models.facts import facts_of
from ...work.models.usable import model_names
from ...work.roles.files import FILES as ROLES

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ....protocol.macro import Macro
    from ....protocol.role import Role
    from ....protocol.settings import Settings
    from ...io.named_files import NamedFiles
    from ...runs.root import Root
    from .chat import Chat

Names = list[tuple[str, str]]
"""Names, and what lists say of each."""

MOST_FILES = 200
MOST_LISTS = 500
_kept: dict[tuple[str, str], tuple[tuple[float, ...], Names]] = {}


def _lately(kind: str, directories: list[Path], read: Callable[[], Names]) -> Names:
    key = (kind, str(directories[0]))
    now = tuple(_changed(each) for each in directories)
    kept = _kept.get(key)
    if kept is None or kept[0] != now:
        if len(_kept) >= MOST_LISTS:
            _kept.clear()
        kept = _kept[key] = now, read()
    return kept[1]


def _changed(directory: Path) -> float:
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0.0


def roles(chat: Chat, caller: Caller) -> Names:
    """The roles of the user, and those that come with us."""
    if not caller.has("read:roles"):
        return []
    base = chat.hub.root.config_dir
    return _lately("roles", [ROLES.directory(base)], lambda: _described(ROLES, base))


def _described(files: NamedFiles[Role] | NamedFiles[Macro], base: Path) -> Names:
    """Files by their names, with what they say that they are for; one that can't be read is found all the same."""
    found: Names = []
    for place in files.places(base):
        try:
            about = " ".join(files.load(place).description.split())
        except CallboardError as error:
            about = f"can't be read: {error}".splitlines()[0]
        found.append((place.name, about))
    return found


def macros(chat: Chat, caller: Caller) -> Names:
    """The macros."""
    if not caller.has("read:agents"):
        return []
    base = chat.hub.root.config_dir
    return _lately("macros", [MACROS.directory(base)], lambda: _described(MACROS, base))


def agents(chat: Chat, caller: Caller) -> Names:
    """The agents of the user, and those that come with us."""
    if not caller.has("read:agents"):
        return []
    base = chat.hub.root.config_dir

    def read() -> Names:
        known = dict.fromkeys((*own_agents(base), *built_in_agents()))
        return [(name, description_of(name, base)) for name in known]

    return _lately("agents", [base / "agents"], read)


def rags(chat: Chat, caller: Caller) -> Names:
    """The knowledge bases."""
    if not caller.has("read:agents"):
        return []
    base = chat.hub.root.config_dir
    return _lately("rags", [registry.folder(base)], lambda: [(name, "") for name in registry.names(base)])


def sessions(chat: Chat, caller: Caller) -> Names:
    """The sessions of the agent that the chat is in, or of none; those that have a name."""
    if not caller.has("read:sessions"):
        return []
    store, agent = chat.hub.root.sessions.store, chat.memory.stored.agent

    def read() -> Names:
        try:
            found = store.list(agent, everywhere=False, caller=caller)
        except CallboardError:
            return []
        return [(meta.alias, meta.title or "") for meta in found if meta.alias]

    home = scope_of(store.config_dir, agent).home
    whose = f"{caller.subject} {caller.has('admin:sessions')}"
    return _lately(f"sessions of {whose}", [home / "by-name", home / "by-id"], read)


def models(root: Root, type: str = "chat") -> Names:
    """The models that can be named, with window and price. Blocks: the first time, the table of prices is read."""
    settings = root.settings
    kept = _models.get(type)
    if kept is None or kept[0] is not settings:
        names = model_names(settings, os.environ) if type == "chat" else _listed(root, type)
        kept = _models[type] = settings, [(name, _about(root, name)) for name in names]
    return kept[1]


_models: dict[str, tuple[Settings, Names]] = {}


def _listed(root: Root, type: str) -> Iterator[str]:
    for client in root.settings.clients:
        yield from (f"{client.name}:{model.name}" for model in client.models if model.type == type)


def _about(root: Root, name: str) -> str:
    """Window and price, and what the settings say that it can't do."""
    catalog = root.gateway.catalog
    try:
        client, model = catalog.named(name)
    except CallboardError:
        return ""
    lacks = (("no images", model.supports_vision), ("no tools", model.supports_function_calling))
    known = [str(facts_of(catalog.prices.finder, client, model, os.environ))]
    return "; ".join(filter(None, [*known, *(mark for mark, has in lacks if not has)]))


def files(begun: str) -> Names:
    """Files and directories whose path begins so."""
    head, slash, tail = begun.rpartition("/")
    directory = Path(head + slash or ".").expanduser()
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except (OSError, RuntimeError, ValueError):
        return []
    found: Names = []
    for entry in entries:
        if entry.name.startswith(tail) and (tail.startswith(".") or not entry.name.startswith(".")):
            is_directory = entry.is_dir()
            found.append(
                (f"{head}{slash}{entry.name}{'/' if is_directory else ''}", "directory" if is_directory else "")
            )
        if len(found) >= MOST_FILES:
            break
    return found
