"""Skills: directories with instructions that an agent reads when it needs them.

    .agents/skills/<name>/SKILL.md     a head of YAML between two lines of `---` (`name`, `description`), then the text

They are looked for beside the workflow, beside its directory, and in the working directory. The agent gets names and
descriptions; `skill__read` gives it the text, or another file of the skill's directory and nothing outside of that.
`allowed-tools` of a skill is not ours to say: which tools may be called, permissions decide.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import trio
import yaml

from .....protocol.errors import GraphMistake, ToolFailed
from .....protocol.problems import did_you_mean
from .....protocol.workflow.agents import Skills
from .....supervisors import Actor
from ....work.tools.tool import Arguments, Json, Tool, ToolSpec, shortened

FILE = "SKILL.md"
READ = "skill__read"
LARGEST = 1_000_000
"""Bytes of a file that is read."""

_LONGEST_DESCRIPTION = 1_000


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill that was found."""

    name: str
    description: str
    directory: Path


def skills_of(skills: Skills | None, directory: Path) -> list[Skill]:
    """What an agent may use of the skills that the workflows in `directory` have.

    Raises:
        GraphMistake: it is allowed one that is not there, or that has no proper head.
    """
    if skills is None or not skills.enabled:
        return []
    places = [place / ".agents" / "skills" for place in (directory, directory.parent, Path.cwd())]
    root = next((place for place in places if place.is_dir()), None)
    there = sorted(file.parent.name for file in root.glob(f"*/{FILE}")) if root is not None else []
    for name in skills.allow:
        if name not in there:
            hint = did_you_mean(name, there) or f"there is no {(root or places[0]) / name / FILE}"
            raise GraphMistake(f"`skills` allows '{name}': {hint}")
    wanted = [name for name in there if not skills.allow or name in skills.allow]
    return [_read(root / name) for name in wanted] if root is not None else []


def told(skills: Collection[Skill]) -> str:
    """Their text in the prompt; "" for none."""
    if not skills:
        return ""
    lines = [f"- {skill.name}: {skill.description}" for skill in skills]
    return f"Skills. Before you do what one of them is for, read it with {READ} and follow it:\n" + "\n".join(lines)


def skill_tool(skills: Collection[Skill]) -> Tool:
    """The tool that reads them."""
    by_name = {skill.name: skill for skill in skills}

    async def run(me: Actor, arguments: Arguments) -> Json:  # noqa: ARG001 - nothing is done for anybody
        skill = by_name[arguments["name"]]
        return await trio.to_thread.run_sync(_text_of, skill, arguments.get("file") or FILE)

    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": list(by_name), "description": "Which skill."},
            "file": {"type": "string", "description": f"A file of its directory; left out, its {FILE}."},
        },
        "required": ["name"],
    }
    spec = ToolSpec(name=READ, description="Reads a skill, or a file that belongs to it.", parameters=parameters)
    return Tool(spec=spec, run=run)


def _read(directory: Path) -> Skill:
    file = directory / FILE
    try:
        _, head, _ = f"\n{file.read_text('utf-8-sig')}".split("\n---", 2)
        values = yaml.safe_load(head)
    except (OSError, UnicodeDecodeError, ValueError, yaml.YAMLError) as error:
        how = "begin it with `---`, `name: ...`, `description: ...`, `---`"
        raise GraphMistake(f"{file} has no head ({error}); {how}") from error
    description = values.get("description") if isinstance(values, dict) else None
    if not isinstance(description, str) or values.get("name") != directory.name:
        raise GraphMistake(f"{file}: its head needs `name: {directory.name}`, like its directory, and a `description`")
    return Skill(
        name=directory.name,
        description=shortened(" ".join(description.split()), _LONGEST_DESCRIPTION),
        directory=directory,
    )


def _text_of(skill: Skill, file: str) -> str:
    root = skill.directory.resolve()
    try:
        path = (root / file).resolve()
        if not path.is_relative_to(root):
            raise ToolFailed(f"'{file}' is not in the directory of the skill '{skill.name}'")
        if not path.is_file():
            raise ToolFailed(f"the skill '{skill.name}' has no file '{file}'")
        with path.open("rb") as opened:
            data = opened.read(LARGEST)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise ToolFailed(f"'{file}' can't be read: {error}") from error
    return data.decode("utf-8", "replace")
