"""Trust in a directory's files for agents, for `callboard trust`, as text and JSON. None of the files is executed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...actors.work.trust import (
    Kind,
    TrustComparison,
    TrustRecord,
    as_it_is,
    commands_of_hooks,
    commands_of_servers,
    compare_with_trusted,
    forget,
    keep,
    record_of,
    root_of,
)
from ...protocol.errors import UsageError
from ..render.text import columns, counted, safe

_TITLES: dict[Kind, str] = {
    "instructions": "instructions to agents",
    "skills": "skills",
    "hooks": "hooks, which execute commands",
    "servers": "MCP servers, which are started as programs",
}
_MOST_FILES = 40
_STATES = {"new": "new", "changed": "changed", "gone": "gone", "trusted": ""}


def show_trust(directory: Path, *, as_json: bool) -> str:
    """Return the files for agents in a directory's workspace, and which of them are trusted, as text or JSON.

    Raises:
        UsageError: the directory can't be a workspace: it is the home directory, or above it.
    """
    root = _root(directory)
    record, found = record_of(root, os.environ), compare_with_trusted(root, os.environ)
    if as_json:
        return _json(root, record, found)
    lines = [f"{safe(str(root))}: {_record_text(record)}"]
    if not found:
        lines.append("This directory has no files for agents: no AGENTS.md, skills, hooks or .mcp.json.")
    for kind, title in _TITLES.items():
        files = [each for each in found if each.kind == kind]
        if files:
            lines.append(f"{title}:")
            lines += _files(files)
            lines += _able(root, kind, files)
    diffs = [each.diff for each in found if each.diff]
    if diffs:
        lines += ["", "changed since you trusted it:", *(safe(line) for diff in diffs for line in diff.splitlines())]
    return "\n".join(lines) + "\n"


def trust_directory(directory: Path, *, as_json: bool) -> str:
    """Trust the files for agents in a directory as they are now; return a message or JSON. Raises as `show_trust`."""
    root = _root(directory)
    before = record_of(root, os.environ)
    record = as_it_is(root)
    keep(record, os.environ)
    if as_json:
        return _json(root, record, compare_with_trusted(root, os.environ))
    # A refusal records no files.
    old = {} if before is None or not before.trusted else before.files
    changed = [name for name, seen in record.files.items() if old.get(name) is None or old[name].sum != seen.sum]
    told = f"{safe(str(root))} is trusted: {counted(len(record.files), 'file')}"
    if old:
        told += f", {len(changed) or 'none'} of them new or changed"
    kinds = {seen.kind for seen in record.files.values()}
    counts = [
        f"  {title}: {sum(seen.kind == kind for seen in record.files.values())}"
        for kind, title in _TITLES.items()
        if kind in kinds
    ]
    return "\n".join([told, *counts]) + "\n"


def revoke_trust(directory: Path, *, as_json: bool) -> str:
    """Refuse the files of a directory, so that runs neither load nor mention them; return a message or JSON.

    Raises as `show_trust`.
    """
    root = _root(directory)
    record = TrustRecord(directory=str(root), trusted=False)
    keep(record, os.environ)
    if as_json:
        return _json(root, record, compare_with_trusted(root, os.environ))
    return f"{safe(str(root))} is not trusted, and runs do not mention it (to undo this: callboard trust --forget)\n"


def forget_trust(directory: Path, *, as_json: bool) -> str:
    """Remove the decision about a directory, as if it were new; return a message or JSON. Raises as `show_trust`."""
    root = _root(directory)
    was = forget(root, os.environ)
    if as_json:
        return _json(root, None, compare_with_trusted(root, os.environ))
    return (
        f"{safe(str(root))}: {'your decision about it was deleted' if was else 'you have made no decision about it'}\n"
    )


def _root(directory: Path) -> Path:
    root = root_of(directory, os.environ)
    if root is None:
        raise UsageError(
            f"{directory.absolute()} is your home directory, or is above it: it can't be a workspace. Your own files "
            "are always used (AGENTS.md and skills of the configuration directory, ~/.agents/skills)"
        )
    return root


def _record_text(record: TrustRecord | None) -> str:
    if record is None:
        return "no decision yet, so its files are not loaded"
    return "trusted" if record.trusted else "not trusted, by your decision"


def _files(files: Sequence[TrustComparison]) -> list[str]:
    rows: dict[str, dict[str, int]] = {}
    for each in files:
        # A skill is one row, `.agents/skills/NAME`, however many files it has.
        name = each.name if each.kind != "skills" else "/".join(each.name.split("/")[:3])
        states = rows.setdefault(name, {})
        states[each.state] = states.get(each.state, 0) + 1
    lines = columns([[safe(name), _in_words(states)] for name, states in rows.items()][:_MOST_FILES])
    more = len(rows) - _MOST_FILES
    return [*lines, f"  ... and {more} more"] if more > 0 else lines


def _in_words(states: Mapping[str, int]) -> str:
    if sum(states.values()) == 1:
        return _STATES[next(iter(states))]
    told = [f"{counted(number, 'file')} {_STATES[state]}".rstrip() for state, number in states.items()]
    return ", ".join(told)


def _able(root: Path, kind: Kind, files: Sequence[TrustComparison]) -> list[str]:
    """Return the commands that servers and hooks would run."""
    if kind == "servers":
        return [f"    {safe(each)}" for each in commands_of_servers(root, files[0].name)]
    if kind == "hooks":
        return [f"    {safe(each)}" for file in files for each in commands_of_hooks(root, file.name)]
    return []


def _json(root: Path, record: TrustRecord | None, found: Sequence[TrustComparison]) -> str:
    said: dict[str, Any] = {
        "directory": str(root),
        "state": "new" if record is None else "trusted" if record.trusted else "refused",
        "files": [msgspec.to_builtins(each) for each in found],
    }
    return msgspec.json.format(msgspec.json.encode(said), indent=2).decode() + "\n"
