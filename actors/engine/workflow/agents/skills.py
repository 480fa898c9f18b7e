"""Skills of an agent node: those beside the workflow, and others that it names (`work/skills`).

Without `allow` an agent may read all that lie beside the workflow, beside its directory, and in the run's directory, as
far as its user trusts that. With it, those of these names, wherever they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....protocol.errors import GraphMistake
from .....protocol.problems import did_you_mean
from .....protocol.skill import FILE
from .....protocol.workflow.agents import Skills as Allowed
from ....work.skills.found import NEAR, FoundSkill, Skills
from ....work.skills.tool import block, skill_tool
from ....work.told import Told, ToldSkill
from ....work.tools.tool import Tool
from ....work.trust.trusted import workspace_of

if TYPE_CHECKING:
    from pathlib import Path

    from ....work.context import RunContext

_OF_PLACES = (NEAR, "workspace")


def skills_of(allowed: Allowed, directory: Path, context: RunContext) -> tuple[Told, Tool | None]:
    """What an agent is told of its skills, and the tool that reads them; nothing and None for none. Reads files.

    Raises:
        GraphMistake: it is allowed one that is not there, or one beside the workflow is none.
    """
    here = context.cwd
    trusted = None if here is None else workspace_of(here, context.environ)
    skills = Skills(trusted, context.config_dir, context.environ, near=(directory, directory.parent))
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
        return Told(), None
    told = tuple(ToldSkill(name=each.skill.name, allows=each.skill.allows) for each in found)
    return Told(blocks=(block(found),), skills=told), skill_tool(skills, told)
