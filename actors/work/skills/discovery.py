"""Discovery of skills.

    near              .agents/skills in the directory of an executed workflow, and in its parent directory
    workspace         .callboard/skills, .agents/skills, .claude/skills, if trusted (`trust`)
    user              <config>/skills, ~/.agents/skills, ~/.claude/skills
    built in          skills of Callboard, which an agent gets only by name

Of two skills with one name the first found wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from ....protocol.errors import ToolFailed
from ....protocol.problems import Problem
from ....protocol.skill import NAMES, Skill, read_skill
from ..library import SKILLS as OURS
from ..trust import LARGEST, Trusted, skill_directories

BUILT_IN = "built in"
NEAR = "near"
MOST = 500
"""Maximum skills per directory; the first by name are used."""

MOST_FILES = 300
"""Maximum files of one skill that are listed."""


class FoundSkill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill with its origin.

    Attributes:
        origin: `near`, `workspace`, `user` or `built in`.
        problems: warnings about its file.
    """

    skill: Skill
    origin: str
    problems: tuple[Problem, ...] = ()


class FoundSkills:
    """Skills that a run may use.

    Args:
        trusted: the workspace; None for none.
        near: directories chosen by the user, such as a workflow's own.

    Attributes:
        by_name: the skills by name, the first found of each name.
        broken: errors of skills that cannot be used.
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
            # Places are visited in order of precedence: the first skill of a name stays.
            self.by_name.setdefault(skill.name, FoundSkill(skill=skill, origin=origin, problems=tuple(problems)))

    def _text(self, file: Path, origin: str) -> str | None:
        if origin == "workspace":
            assert self._trusted is not None
            return self._trusted.text(file) if file.is_file() else None
        return _read(file)

    def file(self, name: str, path: str) -> str:
        """Return the text of a skill's file other than `SKILL.md`. Blocks.

        Raises:
            ToolFailed: it does not exist, is not text, or is not the trusted version.
        """
        found = self.by_name[name]
        directory = Path(found.skill.directory)
        root, file = directory.resolve(), (directory / path).resolve()
        # The path comes from a model, so it must not leave the skill's directory.
        if root not in file.parents:
            raise ToolFailed(f"'{path}' is not in the directory of the skill '{name}'")
        if not file.is_file():
            raise ToolFailed(f"the skill '{name}' has no file '{path}'")
        text = self._text(directory / path, found.origin)
        if text is None:
            raise ToolFailed(f"'{path}' of the skill '{name}' can't be read, or has changed since it was trusted")
        # A binary file would only waste the model's tokens.
        if "\0" in text[:8192]:
            raise ToolFailed(f"'{path}' of the skill '{name}' is no text; give its path to a tool that can use it")
        return text

    def files(self, name: str) -> list[str]:
        """Return the skill's files other than `SKILL.md`, by relative path. Blocks.

        Raises:
            ToolFailed: a file is new or has changed since the skill was trusted.
        """
        found = self.by_name[name]
        directory = Path(found.skill.directory)
        if found.origin != "workspace":
            return _files(directory)
        assert self._trusted is not None
        files = _files(directory)
        for each in files:
            if self._trusted.read(directory / each) is None:
                raise ToolFailed(
                    f"'{each}' of the skill '{name}' is new, or has changed since this directory was trusted; the user "
                    "can look at it with `callboard trust --show`"
                )
        return files


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
