"""Layout of bundles: selects the files to install, and their targets. It is the layout of a configuration directory.

    agents/NAME/…  (also functions/agents/NAME/…)    an agent each; agents/.shared/… is shared by them
    roles/NAME.md   macros/NAME.yaml   workflows/…   a role, a macro, a workflow each
    functions/tools/NAME.sh|.py|.ts   tools/…        a global tool each; functions/utils/… is shared by them, and
                                                     utils/… next to tools/…, as in aichat's ($LLM_ROOT_DIR)
    mcp.json        functions/mcp.json               an MCP server for each entry

All of it may be in one directory below the top, such as `assets/`. Other files are not installed: documents, tests, and
files of the author's own machine (`.env`, `config.yaml`, sessions, caches). `functions/bin` is left out because its
programs would come first on the PATH of every tool.

A bundle is refused as a whole if a selected file is unsafe: not a plain file, or with a name that is another path on
some system. The error has one line for each such file.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from ....protocol.errors import InvalidFile, UsageError
from ....protocol.problems import did_you_mean
from ...io.named_files import is_name
from ..tools.registry import AICHAT_FILE
from .source import KIB, MIB, SourceFile, SourceTree, one_line

Kind: TypeAlias = Literal["agents", "roles", "macros", "tools", "mcp", "workflows"]
KINDS: tuple[Kind, ...] = ("agents", "roles", "macros", "tools", "mcp", "workflows")
OTHER_NAMES: dict[str, Kind] = {"functions": "tools", "mcp_config": "mcp", "mcp_servers": "mcp"}
"""Loki's names of kinds for its `--filter`."""

ONE: dict[Kind, str] = {
    "agents": "agent",
    "roles": "role",
    "macros": "macro",
    "tools": "tool",
    "mcp": "MCP server",
    "workflows": "workflow",
}

LARGEST_FILE = 4 * MIB
LARGEST = 32 * MIB
MOST_FILES = 2_000
DEEPEST = 3
"""Most directories above the bundle's own directory."""

MCP_FILES = ("mcp.json", "functions/mcp.json")

_TOOL = re.compile(r"(?:functions/)?tools/([A-Za-z_][\w-]*)\.(?:sh|py|ts|js)")
_AGENT = re.compile(r"(?:functions/)?agents/([^/]+)/(.+)")
_FILES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("roles", re.compile(r"roles/([^/]+)\.md")),
    ("macros", re.compile(r"macros/([^/]+)\.yaml")),
    ("workflows", re.compile(r"workflows/(.+)\.ya?ml")),
)
_SHARED = {".shared": "agents/.shared", "utils": "functions/utils"}
_LOOSE = "utils/"
_LEFT = frozenset(
    {".env", ".git", ".DS_Store", "sessions", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache"}
)
"""Files and directories of the author's machine, which are not installed."""

LONGEST_PART = 200
"""Most bytes of a path component: file systems allow 255, and the temporary file of a write has a longer name."""

_ODD = re.compile(r"[\x00-\x1f\x7f\\:*?\"<>|]|[. ]$")


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """Unit that can be installed by itself.

    Attributes:
        files: its files, by target path in the configuration directory. A server has none.
    """

    kind: Kind
    name: str
    files: dict[str, SourceFile] = {}

    @property
    def label(self) -> str:
        """Label for messages: `agent coder`."""
        return f"{ONE[self.kind]} {self.name}"


class SourceLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Installable items of a source.

    Attributes:
        top: directory with the bundle; "" for the top of the source.
        mcp: the file with servers, if there is one.
        left_out: files that are not installed, with the reason.
    """

    top: str
    items: tuple[Item, ...]
    mcp: SourceFile | None = None
    left_out: tuple[str, ...] = ()


def lay_out(tree: SourceTree) -> SourceLayout:
    """Find the installable items of a source.

    Raises:
        InvalidFile: there are none, or they are in several directories.
    """
    paths = [entry.path for entry in tree.entries]
    tops = _tops(paths)
    if not tops and any(map(_TOOL.fullmatch, paths)):
        tops = [""]  # a collection of tools alone
    if not tops:
        raise InvalidFile(
            "the bundle has nothing to install: no agents/NAME/, roles/NAME.md, macros/NAME.yaml, "
            "functions/tools/NAME.sh, workflows/NAME.yaml or mcp.json, at its top or in one directory below"
        )
    if len(tops) > 1:
        raise InvalidFile(
            f"the source contains several bundles ({', '.join(map(one_line, tops[:9]))}); select one with --path DIR"
        )
    return _of(tree.below(tops[0]), tops[0])


def _of(tree: SourceTree, top: str) -> SourceLayout:
    found: dict[tuple[Kind, str], dict[str, SourceFile]] = defaultdict(dict)
    left: list[str] = []
    # `utils/` belongs to a bundle only next to a `tools/` with tools.
    loose = any(entry.path.startswith("tools/") and _TOOL.fullmatch(entry.path) for entry in tree.entries)
    for entry in sorted(tree.entries, key=lambda entry: entry.path):
        if entry.path.startswith("functions/bin/"):
            left.append(f"{one_line(entry.path)}: would be first on the PATH of every tool")
        place = _place(entry.path)
        if place is None or (entry.path.startswith(_LOOSE) and not loose):
            continue
        kind, name, target = place
        if any(part in _LEFT or part.endswith((".pyc", ".part")) for part in entry.path.split("/")):
            left.append(f"{one_line(entry.path)}: is specific to its author's machine")
        else:
            # `agents/X` and `functions/agents/X` have the same target: the first in sort order is used.
            found[kind, name].setdefault(target, entry)
    items = [Item(kind=kind, name=name, files=files) for (kind, name), files in found.items()]
    items.sort(key=lambda item: (KINDS.index(item.kind), item.name))
    mcp = next((entry for path in MCP_FILES for entry in tree.entries if entry.path == path), None)
    return SourceLayout(top=top, items=tuple(items), mcp=mcp, left_out=tuple(left))


def _place(path: str) -> tuple[Kind, str, str] | None:
    """Return kind and name of the item of a file, and its target; None if the file is not installed."""
    if match := _AGENT.fullmatch(path):
        name = match[1]
        return ("agents", name, f"agents/{name}/{match[2]}") if name == ".shared" or is_name(name) else None
    for kind, pattern in _FILES:
        if match := pattern.fullmatch(path):
            return (kind, match[1], path) if kind == "workflows" or is_name(match[1]) else None
    if path.startswith(("functions/utils/", _LOOSE)):
        return "tools", "utils", path
    if match := _TOOL.fullmatch(path):
        return "tools", match[1], f"functions/tools/{path.rpartition('/')[2]}"
    return None


def _tops(paths: Iterable[str]) -> list[str]:
    """Return the highest directories with the layout of a bundle, none of them within another."""
    found: set[str] = set()
    for path in paths:
        parts = path.split("/")
        for depth in range(min(DEEPEST, len(parts) - 1) + 1):
            if depth and parts[depth - 1].startswith("."):
                break  # .github/workflows are workflows of another kind
            rest = "/".join(parts[depth:])
            place = _place(rest)
            if rest in MCP_FILES or (place is not None and _counts(rest)):
                found.add("/".join(parts[:depth]))
    if "" in found:
        return [""]
    highest = min((top.count("/") for top in found), default=0)
    return sorted(top for top in found if top.count("/") == highest)


def _counts(path: str) -> bool:
    """Return whether such a file makes a directory a bundle. A directory `tools` alone may be anything."""
    agent = _AGENT.fullmatch(path)
    if agent is not None:
        return agent[2] in ("config.yaml", "graph.yaml", AICHAT_FILE)
    return not path.startswith(("tools/", "functions/utils/", _LOOSE))


# --- selection and safety checks


def chosen(items: Sequence[Item], filters: Sequence[str], *, strict: bool = True) -> list[Item]:
    """Return the items that match the filters: a kind (`roles`), a name (`coder`) or both (`agents/coder`).

    Shared files of agents or tools are included with any of them.

    Args:
        strict: every filter must match an item; an update is not strict, because an installed item may be gone
            upstream.

    Raises:
        UsageError: a filter matches nothing.
    """
    if not filters:
        return list(items)
    taken: set[tuple[Kind, str]] = set()
    for text in filters:
        matched = {(item.kind, item.name) for item in items if _matches(text, item)}
        if not matched and strict:
            names = [item.name for item in items]
            near = "" if is_kind(text) else did_you_mean(text, [*KINDS, *names])
            has = [kind for kind in KINDS if any(item.kind == kind for item in items)]
            hint = near or f"it has {', '.join(has)}: {', '.join(dict.fromkeys(names))}"
            raise UsageError(f"'{text[:100]}' is neither a kind nor the name of an item in this bundle; {hint}")
        taken |= matched
    kinds = {kind for kind, _ in taken}
    return [item for item in items if (item.kind, item.name) in taken or (item.name in _SHARED and item.kind in kinds)]


def is_kind(text: str) -> Kind | None:
    """Return the kind for a word of `--filter`; None if the word is a name."""
    return next((kind for kind in KINDS if kind == text), OTHER_NAMES.get(text))


def _matches(text: str, item: Item) -> bool:
    kind = is_kind(text)
    if kind is not None:
        return item.kind == kind
    first, slash, name = text.partition("/")
    if slash and (kind := is_kind(first)) is not None:
        return (item.kind, item.name) == (kind, name)
    return item.name == text


def refuse(items: Iterable[Item]) -> None:
    """Raise an error unless all files of these items can be installed safely.

    Raises:
        InvalidFile: some can't; one line for each.
    """
    files = [(target, entry) for item in items for target, entry in item.files.items()]
    lines = [line for target, entry in files for line in _refusals(target, entry)]
    lines += dict.fromkeys(_collisions([target for target, _ in files]))
    if len(files) > MOST_FILES:
        lines.append(f"the bundle has {len(files)} files (at most {MOST_FILES} are allowed)")
    size = sum(entry.size for _, entry in files)
    if size > LARGEST:
        lines.append(f"its files have {size // MIB} MiB in total (at most {LARGEST // MIB} MiB are allowed)")
    if lines:
        shown = [f"  {line}" for line in lines[:20]] + ([f"  and {len(lines) - 20} more"] if lines[20:] else [])
        raise InvalidFile("\n".join(["the bundle was refused, and nothing was installed:", *shown]))


def _refusals(target: str, entry: SourceFile) -> Iterator[str]:
    shown = one_line(entry.path)
    if entry.kind == "link":
        yield f"{shown} is a symbolic link, which could point outside of the bundle"
    elif entry.kind == "submodule":
        yield f"{shown} is a git submodule, and submodules are not fetched"
    elif entry.kind == "special":
        yield f"{shown} is not a regular file"
    if entry.size > LARGEST_FILE:
        yield f"{shown} has {entry.size // KIB} KiB (at most {LARGEST_FILE // KIB} KiB are allowed)"
    if not is_safe(target):
        yield f"'{shown}' is too long for a path, or is not a portable path"


def is_safe(path: str) -> bool:
    """Return whether a path stays below its base directory on every operating system."""
    parts = path.split("/")
    return (
        len(path.encode(errors="replace")) <= 1_000
        and all(len(part.encode(errors="replace")) <= LONGEST_PART for part in parts)
        and all(part not in ("", ".", "..") and part.lower() != ".git" and not _ODD.search(part) for part in parts)
        and path.isprintable()
        and not any("\ud800" <= letter <= "\udfff" for letter in path)
    )


def _collisions(targets: Sequence[str]) -> Iterator[str]:
    """Yield a message for each pair of paths that collide.

    Paths collide on a file system that ignores case or Unicode composition. A path also collides with a directory of
    the same name (`agents/a/x` and `functions/agents/a/x/y`).
    """
    files, seen = frozenset(targets), dict[str, str]()
    for target in targets:
        yield from (f"{path!r} is both a file and a directory" for path in _above(target) if path in files)
        # Every prefix, since directories collide as well.
        parts = target.split("/")
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            other = seen.setdefault(unicodedata.normalize("NFC", path).casefold(), path)
            if other != path:
                yield f"{path!r} and {other!r} are the same name on some file systems"


def _above(path: str) -> Iterator[str]:
    """Return the parent directories of a path."""
    parts = path.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts)))
