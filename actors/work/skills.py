"""Agent Skills: instructions that an agent reads before a kind of work, with files and scripts in the same directory.

    near              .agents/skills in the directory of an executed workflow, and in its parent directory
    workspace         .callboard/skills, .agents/skills, .claude/skills, if trusted (`trust`)
    user              <config>/skills, ~/.agents/skills, ~/.claude/skills
    built in          skills of Callboard, which an agent gets only by name

Of two skills with one name the first found wins. `protocol.skill` parses a skill's file.

The system prompt contains names and descriptions. The tool `skill` returns the instructions of one skill, with its
directory and the files in it; with `file` it returns one of these. Scripts run by path, with the agent's other tools,
in the same sandbox.

`allowed-tools` of a skill restricts the tools of an agent that follows it. The restriction only removes permissions and
never grants any. An agent follows the skill that it read last, until the user's next message. The tools to read skills,
ask the user, manage todos, and check running children remain allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...protocol.chat import AssistantTurn, ToolTurn, Turn, UserTurn
from ...protocol.errors import ToolFailed
from ...protocol.other_programs import ours, split_pattern
from ...protocol.permissions import PermissionRule, Permissions, Verdict
from ...protocol.problems import Problem
from ...protocol.skill import NAMES, Skill, read_skill
from .library import SKILLS as OURS
from .opening_instructions import ListedSkill
from .tools.tool import Arguments, Json, Tool, ToolSpec, shortened
from .trust import LARGEST, Trusted, skill_directories

if TYPE_CHECKING:
    from ...supervisors import Actor


BUILT_IN = "built in"
NEAR = "near"
MOST = 500
"""Maximum skills per directory; the first by name are used."""

MOST_FILES = 300
"""Maximum files of one skill that are listed."""

NAME = "skill"
_ALWAYS = (NAME, "user__*", "todo__*", "agent__check*", "agent__collect", "agent__list*", "agent__reply_escalation")

LONGEST_DESCRIPTION = 1_024

_HEAD = """\
## Skills
Each of these is a set of instructions for one kind of work. Before you do what one of them is for, read it with the \
tool `skill` and follow it."""


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
    """Skills that a run may use. The constructor reads their files and blocks.

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
        """Return the text of a skill's file other than `SKILL.md`, at most `LARGEST` bytes. Blocks.

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
            raise ToolFailed(f"'{path}' of the skill '{name}' is not text; pass its path to a tool that can use it")
        return text

    def files(self, name: str) -> list[str]:
        """Return the paths of the skill's files other than `SKILL.md`, relative to it; `MOST_FILES` at most. Blocks.

        Raises:
            ToolFailed: a file of a workspace's skill is new or has changed since the workspace was trusted.
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
                    f"'{each}' of the skill '{name}' is new, or has changed since this directory was "
                    "trusted, so it is not read; the user can review it with `callboard trust --show`"
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


def chosen(skills: FoundSkills, names: Sequence[str] | None) -> dict[str, FoundSkill]:
    """Return the skills of these names; unknown names are ignored. For None, return all but the built-in ones."""
    if names is None:
        return {name: found for name, found in skills.by_name.items() if found.origin != BUILT_IN}
    return {name: skills.by_name[name] for name in names if name in skills.by_name}


def block(found: Sequence[FoundSkill], instructions: str | None = None) -> str:
    """Return the section of the system prompt that lists the skills; "" for none.

    Args:
        instructions: text before the list, instead of the default.
    """
    if not found:
        return ""
    lines = [f"- {each.skill.name}: {_line(each.skill.description)}" for each in found]
    return "\n".join([(instructions or _HEAD).rstrip("\n"), *lines])


def skill_tool(skills: FoundSkills | None, told: Sequence[ListedSkill]) -> Tool:
    """Return the tool that reads these skills; `skills` is None in a replay."""

    async def run(me: Actor, arguments: Arguments) -> Json:  # noqa: ARG001 - the tool needs no actor
        which, file = arguments["name"], arguments.get("file")
        found = None if skills is None else skills.by_name.get(which)
        if skills is None or found is None:
            raise ToolFailed(f"there is no longer a skill '{which}'")
        if file and file not in NAMES:
            return await trio.to_thread.run_sync(skills.file, which, file)
        return await trio.to_thread.run_sync(skill_text, skills, found)

    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": [each.name for each in told], "description": "Which skill."},
            "file": {"type": "string", "description": "One of its files; left out, its instructions."},
        },
        "required": ["name"],
    }
    spec = ToolSpec(name=NAME, description="Reads a skill, or a file that belongs to it.", parameters=parameters)
    return Tool(spec=spec, run=run, effect="read", access="nothing")


def skill_text(skills: FoundSkills, found: FoundSkill) -> str:
    """Return a skill's text for the agent. Blocks; raises like `FoundSkills.files`."""
    skill = found.skill
    files = skills.files(skill.name)
    lines = [f"Skill '{skill.name}', in {skill.directory}. Paths in it are relative to that directory."]
    if files:
        lines.append("Its files: " + ", ".join(files))
    if skill.allows:
        lines.append("While you follow it, you may call only: " + ", ".join(skill.allows))
    return "\n".join([*lines, "", skill.text])


def _line(text: str) -> str:
    return shortened(" ".join(text.split()), LONGEST_DESCRIPTION)


def narrowed(told: Sequence[ListedSkill], said: Sequence[Turn]) -> Permissions:
    """Return the rules of the followed skill; empty if none is followed, or it allows everything.

    Args:
        told: the skills that may be read.
        said: the conversation, oldest first.
    """
    allows = {skill.name: skill.allows for skill in told}
    if not any(allows.values()):
        return {}
    done: set[str] = set()
    for turn in reversed(said):
        # A new message of the user ends the restriction.
        if isinstance(turn, UserTurn):
            break
        # A failed read does not make the agent follow the skill.
        if isinstance(turn, ToolTurn) and not turn.error:
            done.add(turn.call)
        if isinstance(turn, AssistantTurn):
            for call in reversed(turn.tool_calls):
                if call.name == NAME and call.id in done:
                    return rules(allows.get(str(_arguments(call.arguments).get("name")), ()))
    return {}


def rules(patterns: Sequence[str]) -> Permissions:
    """Return tool patterns as permission rules that deny all other tools; empty for no pattern."""
    if not patterns:
        return {}
    found: dict[str, Verdict | PermissionRule] = {"*": "deny", **dict.fromkeys(_ALWAYS, "allow")}
    limited: dict[str, list[str]] = {}
    for pattern in patterns:
        name, inner = split_pattern(pattern)
        for tool in ours(name):
            if inner:
                limited.setdefault(tool, []).append(inner)
            else:
                found[tool] = "allow"
    for tool, inners in limited.items():
        # A pattern without arguments already allows the tool completely.
        if tool not in found:
            found[tool] = PermissionRule(allow=tuple(inners), deny=("*",))
    return found


def _arguments(given: object) -> Mapping[str, object]:
    return given if isinstance(given, Mapping) else {}
