"""Prompt block about an agent's skills, and the tool that reads them.

The system prompt contains names and descriptions. `skill` returns the instructions of one skill, with its directory and
the files in it; with `file` it returns one of these. Scripts run by path, with the agent's other tools, in the same
sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import trio

from ....protocol.errors import ToolFailed
from ....protocol.skill import NAMES
from ..opening_instructions import ListedSkill
from ..tools.tool import Arguments, Json, Tool, ToolSpec, shortened
from .allowed_tools import NAME
from .discovery import BUILT_IN, FoundSkill, FoundSkills

if TYPE_CHECKING:
    from ....supervisors import Actor


LONGEST_DESCRIPTION = 1_024

_HEAD = """\
## Skills
Each of these is a set of instructions for one kind of work. Before you do what one of them is for, read it with the \
tool `skill` and follow it."""


def chosen(skills: FoundSkills, names: Sequence[str] | None) -> dict[str, FoundSkill]:
    """Return the skills of these names; for None all, except built-in ones, which have to be named."""
    if names is None:
        return {name: found for name, found in skills.by_name.items() if found.origin != BUILT_IN}
    return {name: skills.by_name[name] for name in names if name in skills.by_name}


def block(found: Sequence[FoundSkill], instructions: str | None = None) -> str:
    """Return the system prompt's block about the skills; "" for none.

    Args:
        instructions: text before the list, instead of the default.
    """
    if not found:
        return ""
    lines = [f"- {each.skill.name}: {_line(each.skill.description)}" for each in found]
    return "\n".join([(instructions or _HEAD).rstrip("\n"), *lines])


def skill_tool(skills: FoundSkills | None, told: Sequence[ListedSkill]) -> Tool:
    """Return the tool that reads these skills; `skills` is None in a replay."""

    async def run(me: Actor, arguments: Arguments) -> Json:  # noqa: ARG001 - nothing is done for anybody
        which, file = arguments["name"], arguments.get("file")
        found = None if skills is None else skills.by_name.get(which)
        if skills is None or found is None:
            raise ToolFailed(f"there is no skill '{which}' any more")
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
    lines = [f"Skill '{skill.name}', in {skill.directory}. Paths in it are seen from there."]
    if files:
        lines.append("Its files: " + ", ".join(files))
    if skill.allows:
        lines.append("While you follow it, you may call only: " + ", ".join(skill.allows))
    return "\n".join([*lines, "", skill.text])


def _line(text: str) -> str:
    return shortened(" ".join(text.split()), LONGEST_DESCRIPTION)
