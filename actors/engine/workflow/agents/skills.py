"""Skills of an agent node: the ones next to the workflow, and others that the node names (`work/skills`).

Without `allow`, an agent can read all skills next to the workflow and next to its directory. If the user trusts the
run's directory, it can also read the skills there. With `allow`, it can read the named skills, wherever they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....protocol.errors import GraphMistake
from .....protocol.problems import did_you_mean
from .....protocol.skill import FILE
from .....protocol.workflow.agents import Skills as Allowed
from ....work.opening_instructions import ListedSkill, OpeningInstructions
from ....work.skills.discovery import NEAR, FoundSkill, FoundSkills
from ....work.skills.tool import block, skill_tool
from ....work.tools.tool import Tool
from ....work.trust.trusted_files import workspace_of

if TYPE_CHECKING:
    from pathlib import Path

    from ....work.context import RunContext

_OF_PLACES = (NEAR, "workspace")


def skills_of(allowed: Allowed, directory: Path, context: RunContext) -> tuple[OpeningInstructions, Tool | None]:
    """Return an agent's instructions about its skills, and the tool that reads them (None without skills). Reads
    files.

    Raises:
        GraphMistake: an allowed skill does not exist, or a skill next to the workflow is invalid.
    """
    here = context.cwd
    trusted = None if here is None else workspace_of(here, context.environ)
    skills = FoundSkills(trusted, context.config_dir, context.environ, near=(directory, directory.parent))
    # Only skills next to the workflow must be valid; the user's own skills can have errors that do not concern it.
    own = tuple(str(place / ".agents" / "skills") for place in (directory, directory.parent))
    if broken := [problem for problem in skills.broken if problem.file.startswith(own)]:
        raise GraphMistake("\n".join(map(str, broken)))
    there = skills.by_name
    for name in allowed.allow:
        if name not in there:
            hint = did_you_mean(name, there) or f"there is no {directory / '.agents' / 'skills' / name / FILE}"
            raise GraphMistake(f"`skills` allows '{name}': {hint}")
    found: list[FoundSkill] = [
        each for name, each in there.items() if (name in allowed.allow if allowed.allow else each.origin in _OF_PLACES)
    ]
    if not found:
        return OpeningInstructions(), None
    told = tuple(ListedSkill(name=each.skill.name, allows=each.skill.allows) for each in found)
    return OpeningInstructions(blocks=(block(found),), skills=told), skill_tool(skills, told)
