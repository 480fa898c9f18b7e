"""Summary of the files that a workspace would load if it were trusted, for the user who decides.

    instructions  AGENTS.md
    skills        deploy, review
    hooks         .claude/settings.json, which runs: make lint
    MCP servers   docs: npx -y @example/docs

Reads the files, but executes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .decisions import TrustRecord, as_it_is, keep
from .trusted_files import TrustComparison, compare_with_trusted
from .workspace_files import HOOKS, Kind, read_inside

MOST_NAMED = 6

TITLES: dict[Kind, str] = {
    "instructions": "instructions",
    "skills": "skills",
    "hooks": "hooks",
    "servers": "MCP servers",
}


def undecided(root: Path, environ: Mapping[str, str]) -> list[TrustComparison]:
    """Return the files that are new or have changed since the user decided."""
    return [each for each in compare_with_trusted(root, environ) if each.state in ("new", "changed")]


def rows_of(root: Path, files: Sequence[TrustComparison]) -> list[tuple[str, str]]:
    """Return a title and a text for each kind of these files."""
    found: list[tuple[str, str]] = []
    for kind, title in TITLES.items():
        of_kind = [each for each in files if each.kind == kind]
        if of_kind:
            found.append((title, _listed(_names(root, kind, of_kind))))
    return found


def trust(root: Path, environ: Mapping[str, str]) -> None:
    """Store that the user trusts the workspace as it is now.

    Raises:
        ConfigError: that can't be written.
    """
    keep(as_it_is(root), environ)


def refuse(root: Path, environ: Mapping[str, str]) -> None:
    """Store that nothing of the workspace is loaded, and that the user is not asked again.

    Raises:
        ConfigError: that can't be written.
    """
    keep(TrustRecord(directory=str(root), trusted=False), environ)


def _names(root: Path, kind: Kind, files: Sequence[TrustComparison]) -> list[str]:
    changed = {each.name for each in files if each.state == "changed"}
    if kind == "skills":
        return list(dict.fromkeys(each.name.split("/")[2] for each in files if each.name.count("/") > 1))
    if kind == "servers":
        return [line for each in files for line in commands_of_servers(root, each.name)] or [files[0].name]
    if kind == "hooks":
        commands = [command for each in files for command in commands_of_hooks(root, each.name)]
        runs = f", which {'runs' if len(files) == 1 else 'run'}: {_listed(commands)}" if commands else ""
        return [f"{_listed([each.name for each in files])}{runs}"]
    return [f"{each.name} (changed)" if each.name in changed else each.name for each in files]


def commands_of_servers(root: Path, name: str) -> list[str]:
    """Return the servers of a `.mcp.json`, each with its command or address."""
    from ....protocol.mcp.read_config import read_mcp

    data = read_inside(root, root / name)
    servers = read_mcp("" if data is None else data.decode("utf-8", "replace"), name).servers
    return [f"{name}: {' '.join([each.command, *each.args]) or each.url}" for name, each in servers.items()]


def commands_of_hooks(root: Path, name: str) -> list[str]:
    """Return the commands that a file of hooks runs; none of a script that belongs to hooks."""
    if name not in HOOKS:
        return []
    from ....protocol.hooks import read_hooks

    data = read_inside(root, root / name)
    table, _ = read_hooks("" if data is None else data.decode("utf-8", "replace"), name)
    return list(dict.fromkeys(_command(hook.command, hook.args) for hooks in table.values() for hook in hooks))


def _command(command: str, arguments: Iterable[str] | None) -> str:
    return " ".join([os.path.basename(command) if arguments else command, *(arguments or ())])  # noqa: PTH119 - of a text


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - MOST_NAMED
    return ", ".join(texts[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
