"""Which skills there are.

    near ones         .agents/skills beside a workflow that is run, and beside its directory
    the workspace's   .callboard/skills, .agents/skills, .claude/skills, where they are trusted (`trust`)
    the user's        <config>/skills, ~/.agents/skills, ~/.claude/skills
    ours              those that come with Callboard; an agent gets them only by name

Of two with one name the one that is found first counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from ....protocol.errors import ToolFailed
from ....protocol.problems import Problem
from ....protocol.skill import NAMES, Skill, read_skill
from ..library import SKILLS as OURS
from ..trust.offered import LARGEST, skill_directories
from ..trust.trusted import Trusted

BUILT_IN = "built in"
NEAR = "near"
MOST = 500
"""Skills in one place; the first by name count."""

MOST_FILES = 300
"""Files of one skill that are listed."""


class FoundSkill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill, and whose it is.

    Attributes:
        origin: `near`, `workspace`, `user` or `built in`.
        problems: warnings about its file.
    """

    skill: Skill
    origin: str
    problems: tuple[Problem, ...] = ()


class Skills:
    """The skills that a run may use.

    Args:
        trusted: the workspace; None for none.
        near: directories that are the user's choice, such as a workflow's own.

    Attributes:
        by_name: see the module.
        broken: errors of those that can't be used.
    """

    def __init__(
        self, trusted: Trusted | None, config_dir: Path, environ: Mapping[str, str], near: Sequence[Path] = ()
    ) -> None:
        self._trusted = trusted
        self._near = near
        self.by_name: dict[str, FoundSkill] = {}
        self.broken: list[Problem] = []
        for directory, origin in self._places(config_dir, environ):
            self._add(directory, origin)

    def _places(self, config_dir: Path, environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
        home = Path(environ.get("HOME") or Path.home())
        yield from ((path, NEAR) for directory in self._near for path in _in(directory / ".agents" / "skills"))
        if self._trusted is not None and self._trusted.is_trusted:
            yield from ((directory, "workspace") for directory in skill_directories(self._trusted.root))
        yield from ((directory, "user") for directory in _in(config_dir / "skills"))
        yield from ((directory, "user") for name in (".agents", ".claude") for directory in _in(home / name / "skills"))
        yield from ((directory, BUILT_IN) for directory in _in(OURS))

    def _add(self, directory: Path, origin: str) -> None:
        for name in NAMES:
            file = directory / name
            text = self._text(file, origin)
            if text is not None:
                break
        else:
            return
        skill, problems = read_skill(text, str(file), str(directory))
        if skill is None:
            self.broken += [problem for problem in problems if problem.severity == "error"]
        else:
            self.by_name.setdefault(skill.name, FoundSkill(skill=skill, origin=origin, problems=tuple(problems)))

    def _text(self, file: Path, origin: str) -> str | None:
        if origin == "workspace":
            assert self._trusted is not None
            return self._trusted.text(file) if file.is_file() else None
        return _read(file)

    def file(self, name: str, path: str) -> str:
        """Another file of a skill, as a text. Blocks.

        Raises:
            ToolFailed: there is none, it is no text, or it is not what was trusted.
        """
        found = self.by_name[name]
        directory = Path(found.skill.directory)
        root, file = directory.resolve(), (directory / path).resolve()
        if root not in file.parents:
            raise ToolFailed(f"'{path}' is not in the directory of the skill '{name}'")
        if not file.is_file():
            raise ToolFailed(f"the skill '{name}' has no file '{path}'")
        text = self._text(directory / path, found.origin)
        if text is None:
            raise ToolFailed(f"'{path}' of the skill '{name}' can't be read, or has changed since it was trusted")
        if "\0" in text[:8192]:
            raise ToolFailed(f"'{path}' of the skill '{name}' is no text; give its path to a tool that can use it")
        return text

    def files(self, name: str) -> list[str]:
        """The files beside its `SKILL.md`, by their paths from there. Blocks.

        Raises:
            ToolFailed: one of them is new or has changed since the skill was trusted.
        """
        found = self.by_name[name]
        directory = Path(found.skill.directory)
        if found.origin != "workspace":
            return _files(directory)
        assert self._trusted is not None
        for each in _files(directory):
            if self._trusted.read(directory / each) is None:
                raise ToolFailed(
                    f"'{each}' of the skill '{name}' is new, or has changed since this directory was trusted; the user "
                    "can look at it with `callboard trust --show`"
                )
        return _files(directory)


def _in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())[:MOST]
    except OSError:
        return []


def _read(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            return opened.read(LARGEST).decode("utf-8-sig", "replace")
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return None


def _files(directory: Path) -> list[str]:
    found: list[str] = []
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.name not in NAMES and "__pycache__" not in path.parts:
            found.append(str(path.relative_to(directory)))
            if len(found) >= MOST_FILES:
                break
    return found
