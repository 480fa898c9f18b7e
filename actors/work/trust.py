"""Workspace trust: only files that the user has approved are read into prompts or executed.

In a new directory nothing is used: no AGENTS.md, no skills, no hooks, no `.mcp.json`. `callboard trust` stores the
current contents of all those files. From then on a file is used only if its bytes are the recorded ones. After a `git
pull`, the user is asked again about changed files only. Start with `Trusted`.

    instructions   AGENTS.md, else CLAUDE.md, of any directory; and files that they import as `@path`
    skills         all files of .agents/skills, .claude/skills, .callboard/skills
    hooks          .callboard/hooks.json, .claude/settings.json, .claude/settings.local.json,
                   and all files of .callboard/hooks, .claude/hooks
    servers        .mcp.json

The root of a workspace is that of the enclosing repository, or the directory itself. All searches are bounded, and only
read names and files: nothing of the directory is executed. A file is used only if its real path is in the workspace: a
`CLAUDE.md` that links to a key file outside is ignored.

The user's decision is one file per workspace, with hash and text of each of its files:

    ~/.local/state/callboard/trust/<hash of the directory's path>.json

The texts allow a later change to be displayed as a diff. With a sandbox, no process of an agent can read or write these
records, because they are in the state directory.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ...protocol.decoding import json_decoder
from ...protocol.errors import ConfigError
from ..io.atomic_write import write_whole
from ..io.directories import private_directory, state_dir

# --- root of a workspace

MOST_LEVELS = 40


def root_of(directory: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the workspace of a directory, with links resolved; None where none is possible.

    It is the nearest directory with `.git`, among this one and its parents below the home directory (`MOST_LEVELS` at
    most), else the directory itself. The home directory and its parents are no workspaces: files there belong to the
    user and to other programs.
    """
    here = Path(os.path.realpath(directory))
    home = Path(os.path.realpath(environ.get("HOME") or Path.home()))
    if _holds(here, home):
        return None
    for place in (here, *here.parents)[:MOST_LEVELS]:
        # A repository that contains the home directory must not make all of it a workspace.
        if _holds(place, home):
            break
        # `lexists`: in worktrees and submodules, `.git` is a file or a link.
        if os.path.lexists(place / ".git"):
            return place
    return here


def levels(directory: Path, root: Path) -> list[Path]:
    """Return the directories from this one up to `root`, nearest first; only `root` if the directory is not in it."""
    here = Path(os.path.realpath(directory))
    if here != root and root not in here.parents:
        return [root]
    return [place for place in (here, *here.parents) if place == root or root in place.parents]


def _holds(place: Path, home: Path) -> bool:
    return place == home or place in home.parents


# --- files that need trust

Kind = Literal["instructions", "skills", "hooks", "servers"]

INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md")
"""Names of instructions files; the first existing one of a directory is used."""

SKILLS = (".callboard/skills", ".agents/skills", ".claude/skills")
HOOKS = (".callboard/hooks.json", ".claude/settings.json", ".claude/settings.local.json")
OF_HOOKS = (".callboard/hooks", ".claude/hooks")
SERVERS = ".mcp.json"

LARGEST = 512 * 1024
"""Maximum bytes of a file; larger files are ignored."""

MOST_FILES = 2_000
MOST_DIRECTORIES = 5_000
DEEPEST = 8
MOST_IMPORTS = 50
DEEPEST_IMPORT = 5

_SKIPPED = frozenset(("node_modules", "venv", "__pycache__", "target", "dist", "build", "vendor"))
_IMPORT = re.compile(r"(?:^|(?<=\s))@(\S+)")
_FENCE = re.compile(r"^\s*(```|~~~)")
_SPAN = re.compile(r"`[^`\n]*`")


def read_inside(root: Path, path: Path) -> bytes | None:
    """Return a file's bytes; None unless its real path is a regular file in `root` of at most `LARGEST` bytes."""
    try:
        real = Path(os.path.realpath(path))
    except ValueError:  # a NUL in the path
        return None
    if root not in real.parents:
        return None
    try:
        # O_NOFOLLOW refuses a link that replaced the file since `realpath`; O_NONBLOCK keeps a FIFO from blocking.
        handle = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(handle, "rb") as file:  # noqa: PTH123 - of a descriptor
        # A directory on the way may have been replaced by a link meanwhile.
        if Path(f"/proc/self/fd/{handle}").readlink() != real:
            return None
        about = os.fstat(handle)
        # Checked on the open file, so that it cannot change its kind afterwards.
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            return None
        data = file.read(LARGEST + 1)
    return data if len(data) <= LARGEST else None


def count_files(root: Path, places: list[Path]) -> dict[Kind, int]:
    """Return the number of items that need trust, by kind; kinds without items are absent. Fast: reads no file.

    Instructions are counted in the directories `places`, all other kinds at the root. A skill is one item.
    """
    found: dict[Kind, int] = {
        "instructions": sum(any((place / name).is_file() for name in INSTRUCTIONS) for place in places),
        "skills": sum(1 for _ in skill_directories(root)),
        "hooks": sum((root / name).is_file() for name in HOOKS),
        "servers": int((root / SERVERS).is_file()),
    }
    return {kind: count for kind, count in found.items() if count}


def skill_directories(root: Path) -> Iterator[Path]:
    """Yield the directories of a workspace's skills, or of a user's home."""
    for folder in SKILLS:
        try:
            entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        except OSError:
            continue
        yield from (Path(entry.path) for entry in entries[:MOST_FILES] if entry.is_dir())


def files(root: Path) -> dict[str, Kind]:
    """Return all files that need trust with their kinds, by path relative to the root.

    At most `MOST_FILES`, in the order hooks, servers, skills, instructions; later files are ignored.
    """
    found: dict[str, Kind] = {}

    def add(path: Path, kind: Kind) -> None:
        if len(found) < MOST_FILES:
            found.setdefault(os.path.relpath(path, root), kind)

    for name in HOOKS:
        if (root / name).is_file():
            add(root / name, "hooks")
    for folder in OF_HOOKS:
        for path in _below(root / folder):
            add(path, "hooks")
    if (root / SERVERS).is_file():
        add(root / SERVERS, "servers")
    for directory in skill_directories(root):
        for path in _below(directory):
            add(path, "skills")
    for path in _instructions(root):
        add(path, "instructions")
        for each in imports(root, path):
            add(each, "instructions")
    return found


def imports(root: Path, path: Path) -> list[Path]:
    """Return the workspace files that an instructions file imports as `@path`, directly and indirectly."""
    found: dict[Path, None] = {}
    todo = [(path, 0)]
    while todo and len(found) < MOST_IMPORTS:
        file, depth = todo.pop(0)
        data = read_inside(root, file)
        for name in () if data is None or depth >= DEEPEST_IMPORT else imported_in(data.decode("utf-8", "replace")):
            other = Path(os.path.normpath(file.parent / name))
            if other != path and other not in found and read_inside(root, other) is not None:
                found[other] = None
                todo.append((other, depth + 1))
    return list(found)


def imported_in(text: str) -> list[str]:
    """Return the paths after `@` in a text, relative to its file. Code blocks and absolute paths are ignored."""
    found: dict[str, None] = {}
    fence = ""
    for line in text.splitlines():
        if mark := _FENCE.match(line):
            fence = "" if fence == mark[1] else fence or mark[1]
            continue
        if not fence:
            # In inline code, `@` is a decorator or a package name.
            found.update((name.rstrip(".,;:)"), None) for name in _IMPORT.findall(_SPAN.sub("", line)))
    return [name for name in found if name and not name.startswith(("~", "/"))]


def _instructions(root: Path) -> Iterator[Path]:
    """Yield the instructions files below the root, up to a limited depth, nearest first."""
    # Breadth first, so that the bound on directories cuts off the deepest files.
    todo = [(root, 0)]
    looked = 0
    while todo and looked < MOST_DIRECTORIES:
        directory, depth = todo.pop(0)
        looked += 1
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError:
            continue
        names = {entry.name for entry in entries}
        yield from (directory / name for name in INSTRUCTIONS if name in names and (directory / name).is_file())
        if depth < DEEPEST:
            todo += [
                (Path(entry.path), depth + 1)
                for entry in entries
                if not entry.name.startswith(".") and entry.name not in _SKIPPED and entry.is_dir(follow_symlinks=False)
            ]


def _below(folder: Path) -> Iterator[Path]:
    """Yield the files below a directory, without following links to directories."""
    count = 0
    for where, directories, names in os.walk(folder):
        directories[:] = sorted(name for name in directories if name not in _SKIPPED and name != ".git")
        for name in sorted(names):
            yield Path(where) / name
            count += 1
            if count >= MOST_FILES:
                return


# --- stored decisions

KEPT_TEXT = 64 * 1024
"""Maximum bytes of a file's text that is stored; of larger files only the hash."""


class TrustedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of a file when it was trusted.

    Attributes:
        sum: its SHA-256.
        kind: its kind.
        text: its content; None if it is too long or not text.
    """

    sum: str
    kind: Kind
    text: str | None = None


class TrustRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Decision of the user about a workspace.

    Attributes:
        directory: its path.
        trusted: True if trusted; False if the user refused and is not asked again.
        files: its files at that time, by path relative to its root.
    """

    directory: str
    trusted: bool
    files: dict[str, TrustedFile] = {}


_decode = json_decoder(TrustRecord).decode


def file_of(root: Path, environ: Mapping[str, str]) -> Path:
    """Return the path of a workspace's record."""
    return state_dir(environ) / "trust" / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}.json"


def record_of(root: Path, environ: Mapping[str, str]) -> TrustRecord | None:
    """Return the record of a workspace; None if there is none or it cannot be read."""
    try:
        record = _decode(file_of(root, environ).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    # The file name is a shortened hash, so the directory itself must match too.
    return record if record.directory == str(root) else None


def as_it_is(root: Path) -> TrustRecord:
    """Return a record that trusts the workspace in its current state. Reads all files that need trust."""
    found: dict[str, TrustedFile] = {}
    for name, kind in files(root).items():
        data = read_inside(root, root / name)
        if data is not None:
            found[name] = TrustedFile(sum=sum_of(data), kind=kind, text=_text(data))
    return TrustRecord(directory=str(root), trusted=True, files=found)


def keep(record: TrustRecord, environ: Mapping[str, str]) -> None:
    """Write the record.

    Raises:
        ConfigError: it cannot be written.
    """
    file = file_of(Path(record.directory), environ)
    try:
        private_directory(file.parent)
        write_whole(file, msgspec.json.format(msgspec.json.encode(record), indent=1), private=True)
    except OSError as error:
        raise ConfigError(
            f"the list of trusted directories can't be written to {file}: {error.strerror or error}"
        ) from error


def forget(root: Path, environ: Mapping[str, str]) -> bool:
    """Delete the record of a workspace; return True if there was one."""
    file = file_of(root, environ)
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    return True


def sum_of(data: bytes) -> str:
    """Return the SHA-256 of a content."""
    return hashlib.sha256(data).hexdigest()


def _text(data: bytes) -> str | None:
    if len(data) > KEPT_TEXT or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


# --- reading by the decisions

State = Literal["new", "trusted", "changed", "gone"]

LONGEST_DIFF = 200
"""Maximum lines of a diff."""

_KINDS: dict[Kind, tuple[str, str]] = {
    "instructions": ("AGENTS.md", "AGENTS.md"),
    "skills": ("a skill", "{} skills"),
    "hooks": ("hooks", "hooks"),
    "servers": (".mcp.json", ".mcp.json"),
}


class Trusted:
    """Trusted contents of one workspace.

    Args:
        root: of the workspace, with links resolved.
        record: the user's decision; None if there is none yet.

    Attributes:
        root: the `root` argument.
        passed_over: requested files that were ignored, because they are new or have changed.
    """

    def __init__(self, root: Path, record: TrustRecord | None) -> None:
        self.root = root
        self.passed_over: dict[str, None] = {}
        self._record = record

    @property
    def is_trusted(self) -> bool:
        """True if the user has trusted the workspace. Its files may have changed since: `read` checks each."""
        return self._record is not None and self._record.trusted

    @property
    def is_refused(self) -> bool:
        """True if the user has refused the workspace."""
        return self._record is not None and not self._record.trusted

    def read(self, path: Path) -> bytes | None:
        """Return a file's bytes if they are the trusted ones, else None.

        In a trusted workspace, a new or changed file is added to `passed_over`.
        """
        if not self.is_trusted:
            return None
        assert self._record is not None
        # The record uses paths as found, so a file reached through a link has the name of the link.
        name = os.path.relpath(path, self.root)
        data = read_inside(self.root, path)
        if data is None:
            return None
        seen = self._record.files.get(name)
        # Hash the bytes that are returned, not the file again: it may change in between.
        if seen is None or seen.sum != sum_of(data):
            self.passed_over[name] = None
            return None
        return data

    def text(self, path: Path) -> str | None:
        """Return the text of a file if it is trusted, else None; a byte order mark is removed."""
        data = self.read(path)
        return None if data is None else data.decode("utf-8-sig", "replace")

    def below(self, directory: Path) -> list[str]:
        """Return the recorded files below a directory, by path relative to it. They may have changed or be gone."""
        if not self.is_trusted:
            return []
        assert self._record is not None
        start = os.path.relpath(directory, self.root) + "/"
        return [name[len(start) :] for name in self._record.files if name.startswith(start)]


def workspace_of(directory: Path, environ: Mapping[str, str]) -> Trusted | None:
    """Return the workspace of a directory; None where none is possible."""
    root = root_of(directory, environ)
    return None if root is None else Trusted(root, record_of(root, environ))


def offers(trusted: Trusted, directory: Path) -> str:
    """Return a description of the files that a workspace would load; "" for none. Fast: reads no file."""
    found = count_files(trusted.root, levels(directory, trusted.root))
    return ", ".join(_KINDS[kind][count > 1].format(count) for kind, count in found.items())


class TrustComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of a workspace's file with its trusted state.

    Attributes:
        name: its path relative to the root.
        state: `new` (not recorded), `trusted` (unchanged), `changed`, or `gone` (recorded, and no longer found).
        diff: the change since, as a unified diff; "" if none can be displayed.
    """

    name: str
    kind: Kind
    state: State
    diff: str = ""


def compare_with_trusted(root: Path, environ: Mapping[str, str]) -> list[TrustComparison]:
    """Compare all files that need trust, including removed ones, with their trusted state. Reads the files."""
    before, now = record_of(root, environ), as_it_is(root)
    # A refusal records no files, so every file counts as new.
    old = before.files if before is not None and before.trusted else {}
    found = [_compared(name, seen, old.get(name)) for name, seen in now.files.items()]
    gone = (
        TrustComparison(name=name, kind=seen.kind, state="gone") for name, seen in old.items() if name not in now.files
    )
    return [*found, *gone]


def _compared(name: str, seen: TrustedFile, before: TrustedFile | None) -> TrustComparison:
    if before is None:
        return TrustComparison(name=name, kind=seen.kind, state="new")
    if before.sum == seen.sum:
        return TrustComparison(name=name, kind=seen.kind, state="trusted")
    diff = "" if before.text is None or seen.text is None else _diff(before.text, seen.text, name)
    return TrustComparison(name=name, kind=seen.kind, state="changed", diff=diff)


def _diff(before: str, after: str, name: str) -> str:
    from difflib import unified_diff

    lines: Iterable[str] = unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="", n=2)
    shown = list(lines)
    more = [f"... {len(shown) - LONGEST_DIFF} more lines"] if len(shown) > LONGEST_DIFF else []
    return "\n".join([*shown[:LONGEST_DIFF], *more])


# --- summary for the user who decides: reads the files, but executes nothing

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
    """Return a title and a text for each kind of the files that need trust, for display."""
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
    from ...protocol.mcp.config import read_mcp

    data = read_inside(root, root / name)
    servers = read_mcp("" if data is None else data.decode("utf-8", "replace"), name).servers
    return [f"{name}: {' '.join([each.command, *each.args]) or each.url}" for name, each in servers.items()]


def commands_of_hooks(root: Path, name: str) -> list[str]:
    """Return the commands that a file of hooks runs; none of a script that belongs to hooks."""
    if name not in HOOKS:
        return []
    from ...protocol.hooks import read_hooks

    data = read_inside(root, root / name)
    table, _ = read_hooks("" if data is None else data.decode("utf-8", "replace"), name)
    return list(dict.fromkeys(_command(hook.command, hook.args) for hooks in table.values() for hook in hooks))


def _command(command: str, arguments: Iterable[str] | None) -> str:
    return " ".join([os.path.basename(command) if arguments else command, *(arguments or ())])  # noqa: PTH119 - of a text


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - MOST_NAMED
    return ", ".join(texts[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
