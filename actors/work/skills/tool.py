"""What an agent is told of skills, and the tool that reads them.

Names and descriptions stand in the system prompt. `skill` returns the instructions of one, with its directory and the
files in it; with `file` one of those. Scripts are run by path, with whatever tools the agent has, in the same sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import trio

from ....protocol.errors import ToolFailed
from ....protocol.skill import NAMES
from ..told import ToldSkill
from ..tools.tool import Arguments, Json, Tool, ToolSpec, shortened
from .found import BUILT_IN, FoundSkill, Skills
from .narrowing import NAME

if TYPE_CHECKING:
    from ....supervisors import Actor


LONGEST_DESCRIPTION = 1_024

_HEAD = """\
## Skills
Each of these is a set of instructions for one kind of work. Before you do what one of them is for, read it with the \
tool `skill` and follow it."""


def chosen(skills: Skills, names: Sequence[str] | None) -> dict[str, FoundSkill]:
    """Those of these names; or all, but for those that come with us, which have to be named."""
    if names is None:
        return {name: found for name, found in skills.by_name.items() if found.origin != BUILT_IN}
    return {name: skills.by_name[name] for name in names if name in skills.by_name}


def block(found: Sequence[FoundSkill], instructions: str | None = None) -> str:
    """What the system prompt says of them; "" for none.

    Args:
        instructions: what stands above the list, in place of our own words.
    """
    if not found:
        return ""
    lines = [f"- {each.skill.name}: {_line(each.skill.description)}" for each in found]
    return "\n".join([(instructions or _HEAD).rstrip("\n"), *lines])


def skill_tool(skills: Skills | None, told: Sequence[ToldSkill]) -> Tool:
    """The tool that reads these; `skills` are None in a run that is played from a record."""

    async def run(me: Actor, arguments: Arguments) -> Json:  # noqa: ARG001 - nothing is done for anybody
        which, file = arguments["name"], arguments.get("file")
        found = None if skills is None else skills.by_name.get(which)
        if skills is None or found is None:
            raise ToolFailed(f"there is no skill '{which}' any more")
        if file and file not in NAMES:
            return await trio.to_thread.run_sync(skills.file, which, file)
        return await trio.to_thread.run_sync(told_of, skills, found)

    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": [each.name for each in told], "description": "Which skill."},
            "file": {"type": "string", "description": "One of its files; left out, its instructions."},
        },
        "required": ["name"],
    }
    spec = ToolSpec(name=NAME, description="Reads a skill, or a file that belongs to it.", parameters=parameters)
    return Tool(spec=spec, run=run, effect="read")


def told_of(skills: Skills, found: FoundSkill) -> str:
    """What an agent reads of a skill. Blocks; raises as `Skills.files` does."""
    skill = found.skill
    files = skills.files(skill.name)
    lines = [f"Skill '{skill.name}', in {skill.directory}. Paths in it are seen from there."]
    if files:
        lines.append("Its files: " + ", ".join(files))
    if skill.allows:
        lines.append("While you follow it, you may call only: " + ", ".join(skill.allows))
    return "\n".join([*lines, "", skill.text])


def _line(text: str) -> str:
    return shortened(" ".join(text.split()), LONGEST_DESCRIPTION)
