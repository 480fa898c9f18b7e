"""What an agent or a node wants to be told of the directory that its run works in, and what it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ...protocol.agent import Agent


class ToldSkill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill that an agent may read: its name and the patterns of what may be called meanwhile."""

    name: str
    allows: tuple[str, ...] = ()


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent or a node wants to be told.

    Attributes:
        instructions: the AGENTS.md files.
        skills: names of skills; None for all that there are, and none for nothing.
        tells: the list of skills stands in the prompt; else only the tool is offered.
        words: what stands above that list, in place of ours.
    """

    instructions: bool = False
    skills: tuple[str, ...] | None = ()
    tells: bool = True
    words: str | None = None

    @classmethod
    def of(cls, agent: Agent) -> Wish:
        """What an agent's file says."""
        return cls(
            instructions=agent.workspace_instructions,
            skills=() if agent.skills_enabled is False else agent.enabled_skills,
            tells=agent.inject_skill_instructions is not False,
            words=agent.skill_instructions,
        )


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is told at its beginning.

    Attributes:
        blocks: parts of its system prompt.
        skills: those that it may read.
        below: it is told the instructions of directories further down when its tools work there.
    """

    blocks: tuple[str, ...] = ()
    skills: tuple[ToldSkill, ...] = ()
    below: bool = False
