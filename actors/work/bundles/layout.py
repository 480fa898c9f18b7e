"""Which files of a source are taken, and where they go: a bundle is laid out as a configuration directory is.

    agents/NAME/…  (also functions/agents/NAME/…)    an agent each; agents/.shared/… is what they share
    roles/NAME.md   macros/NAME.yaml   workflows/…   a role, a macro, a workflow each
    functions/tools/NAME.sh|.py|.ts   tools/…        a global tool each; functions/utils/… is what they share, and
                                                     utils/… beside tools/…, where aichat's find it ($LLM_ROOT_DIR)
    mcp.json        functions/mcp.json               an MCP server for each entry

All of it may stand in one directory below the top, such as `assets/`. Everything else stays where it is: documents,
tests, and what concerns the author's own machine (`.env`, `config.yaml`, sessions, caches). `functions/bin` is left
out because the programs in it would come first on the PATH of every tool.

What is taken is refused as a whole where a file of it is no plain file, or has a name that another system would take
for a different place. One line for each.
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
from ..agent.aichat import INDEX
from .tree import KIB, MIB, Entry, Tree, one_line

Kind: TypeAlias = Literal["agents", "roles", "macros", "tools", "mcp", "workflows"]
KINDS: tuple[Kind, ...] = ("agents", "roles", "macros", "tools", "mcp", "workflows")
OTHER_NAMES: dict[str, Kind] = {"functions": "tools", "mcp_config": "mcp", "mcp_servers": "mcp"}
"""What Loki calls kinds in its own `--filter`."""

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
"""Directories above the bundle's own, where it does not stand at the top."""

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
"""Names of files and directories, within what is taken, that concern the machine of their author."""

LONGEST_PART = 200
"""Bytes of a name within a path; file systems take 255, and what a file is written through has a longer name."""

_ODD = re.compile(r"[\x00-\x1f\x7f\\:*?\"<>|]|[. ]$")


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be installed by itself.

    Attributes:
        files: what belongs to it, by the path that each has in the configuration directory. Of a server none.
    """

    kind: Kind
    name: str
    files: dict[str, Entry] = {}

    @property
    def label(self) -> str:
        """`agent coder`."""
        return f"{ONE[self.kind]} {self.name}"


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """What a source has for us.

    Attributes:
        top: the directory that it stands in; "" for the source's own.
        mcp: the file of servers, if there is one.
        left_out: files within it that are not taken, and why.
    """

    top: str
    items: tuple[Item, ...]
    mcp: Entry | None = None
    left_out: tuple[str, ...] = ()


def lay_out(tree: Tree) -> Layout:
    """What a source has for us.

    Raises:
        InvalidFile: nothing, or it stands in several directories.
    """
    paths = [entry.path for entry in tree.entries]
    tops = _tops(paths)
    if not tops and any(map(_TOOL.fullmatch, paths)):
        tops = [""]  # a collection of tools, and nothing else that we know
    if not tops:
        raise InvalidFile(
            "there is nothing to install: no agents/NAME/, roles/NAME.md, macros/NAME.yaml, functions/tools/NAME.sh,"
            " workflows/NAME.yaml or mcp.json, at the top or in one directory below it"
        )
    if len(tops) > 1:
        raise InvalidFile(
            f"there are several bundles in it ({', '.join(map(one_line, tops[:9]))}); name one with --path DIR"
        )
    return _of(tree.below(tops[0]), tops[0])


def _of(tree: Tree, top: str) -> Layout:
    found: dict[tuple[Kind, str], dict[str, Entry]] = defaultdict(dict)
    left: list[str] = []
    loose = any(entry.path.startswith("tools/") and _TOOL.fullmatch(entry.path) for entry in tree.entries)
    for entry in sorted(tree.entries, key=lambda entry: entry.path):
        if entry.path.startswith("functions/bin/"):
            left.append(f"{one_line(entry.path)}: would come first on the PATH of every tool")
        place = _place(entry.path)
        if place is None or (entry.path.startswith(_LOOSE) and not loose):
            continue
        kind, name, target = place
        if reason := _left_out(entry.path):
            left.append(f"{one_line(entry.path)}: {reason}")
        else:
            found[kind, name].setdefault(target, entry)
    items = [Item(kind=kind, name=name, files=files) for (kind, name), files in found.items()]
    items.sort(key=lambda item: (KINDS.index(item.kind), item.name))
    mcp = next((entry for path in MCP_FILES for entry in tree.entries if entry.path == path), None)
    return Layout(top=top, items=tuple(items), mcp=mcp, left_out=tuple(left))


def _place(path: str) -> tuple[Kind, str, str] | None:
    """Kind and name of what a file belongs to, and where it goes; None if it is not taken."""
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


def _left_out(path: str) -> str:
    for part in path.split("/"):
        if part in _LEFT or part.endswith((".pyc", ".part")):
            return "belongs to its author's machine"
    return ""


def _tops(paths: Iterable[str]) -> list[str]:
    """The directories that are laid out as a bundle, none of them within another; the highest ones only."""
    found: set[str] = set()
    for path in paths:
        parts = path.split("/")
        for depth in range(min(DEEPEST, len(parts) - 1) + 1):
            if depth and parts[depth - 1].startswith("."):
                break  # .github/workflows are other workflows
            rest = "/".join(parts[depth:])
            place = _place(rest)
            if rest in MCP_FILES or (place is not None and _counts(rest)):
                found.add("/".join(parts[:depth]))
    if "" in found:
        return [""]
    highest = min((top.count("/") for top in found), default=0)
    return sorted(top for top in found if top.count("/") == highest)


def _counts(path: str) -> bool:
    """Whether such a file makes a directory a bundle. A directory `tools` alone may be anything."""
    agent = _AGENT.fullmatch(path)
    if agent is not None:
        return agent[2] in ("config.yaml", "graph.yaml", INDEX)
    return not path.startswith(("tools/", "functions/utils/", _LOOSE))


# --- what was chosen


def chosen(items: Sequence[Item], filters: Sequence[str], *, strict: bool = True) -> list[Item]:
    """The items that the filters name, by kind (`roles`), by name (`coder`) or by both (`agents/coder`).

    What agents or tools share comes with any of them.

    Args:
        strict: whether a filter has to name something: upstream may have given up what was installed.

    Raises:
        UsageError: a filter names nothing.
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
            raise UsageError(f"'{text[:100]}' is no kind and no name of what is in this bundle; {hint}")
        taken |= matched
    kinds = {kind for kind, _ in taken}
    return [item for item in items if (item.kind, item.name) in taken or (item.name in _SHARED and item.kind in kinds)]


def is_kind(text: str) -> Kind | None:
    """The kind that a word of `--filter` means; None if it is a name."""
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
    """See to it that all files of these items can be taken.

    Raises:
        InvalidFile: some can't; a line for each.
    """
    files = [(target, entry) for item in items for target, entry in item.files.items()]
    lines = [line for target, entry in files for line in _refusals(target, entry)]
    lines += dict.fromkeys(_collisions([target for target, _ in files]))
    if len(files) > MOST_FILES:
        lines.append(f"{len(files)} files are too many (at most {MOST_FILES})")
    size = sum(entry.size for _, entry in files)
    if size > LARGEST:
        lines.append(f"{size // MIB} MiB in all are too much (at most {LARGEST // MIB} MiB)")
    if lines:
        shown = [f"  {line}" for line in lines[:20]] + ([f"  and {len(lines) - 20} more"] if lines[20:] else [])
        raise InvalidFile("\n".join(["this bundle is refused, and nothing was installed:", *shown]))


def _refusals(target: str, entry: Entry) -> Iterator[str]:
    shown = one_line(entry.path)
    if entry.kind == "link":
        yield f"{shown} is a symbolic link, which might lead out of the bundle"
    elif entry.kind == "submodule":
        yield f"{shown} is a submodule, which is not fetched"
    elif entry.kind == "special":
        yield f"{shown} is no plain file"
    if entry.size > LARGEST_FILE:
        yield f"{shown} has {entry.size // KIB} KiB (at most {LARGEST_FILE // KIB})"
    if not is_safe(target):
        yield f"'{shown}' has a name that is too long, or may mean another place on some system"


def is_safe(path: str) -> bool:
    """Whether a path stays below the directory that it is seen from, on every system."""
    parts = path.split("/")
    return (
        len(path.encode(errors="replace")) <= 1_000
        and all(len(part.encode(errors="replace")) <= LONGEST_PART for part in parts)
        and all(part not in ("", ".", "..") and part.lower() != ".git" and not _ODD.search(part) for part in parts)
        and path.isprintable()
        and not any("\ud800" <= letter <= "\udfff" for letter in path)
    )


def _collisions(targets: Sequence[str]) -> Iterator[str]:
    """Paths that are one on a file system that takes no notice of case, or of how letters are composed, and files in
    whose place a directory is to be as well (`agents/a/x` beside `functions/agents/a/x/y`)."""
    files, seen = frozenset(targets), dict[str, str]()
    for target in targets:
        yield from (f"{path!r} is a file and a directory" for path in _above(target) if path in files)
        parts = target.split("/")
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            other = seen.setdefault(unicodedata.normalize("NFC", path).casefold(), path)
            if other != path:
                yield f"{path!r} and {other!r} are the same name on some systems"


def _above(path: str) -> Iterator[str]:
    """The directories that a path is in."""
    parts = path.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts)))
