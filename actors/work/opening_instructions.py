"""Directory prompt: instructions and skills that an agent or a node gets at its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ...protocol.agent import Agent


class ListedSkill(msgspec.Struct, frozen=True, kw_only=True):
    """Skill that an agent may read: its name, and the tool patterns that it allows while it is followed."""

    name: str
    allows: tuple[str, ...] = ()


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of the directory prompt that an agent or a node requests: instructions, skills.

    Attributes:
        instructions: include AGENTS.md files.
        skills: names of skills; None for all, empty for none.
        tells: list the skills in the prompt; otherwise only the tool is offered.
        words: heading of that list, instead of the default.
    """

    instructions: bool = False
    skills: tuple[str, ...] | None = ()
    tells: bool = True
    words: str | None = None

    @classmethod
    def of(cls, agent: Agent) -> Wish:
        """Return the options of an agent's file."""
        return cls(
            instructions=agent.workspace_instructions,
            skills=() if agent.skills_enabled is False else agent.enabled_skills,
            tells=agent.inject_skill_instructions is not False,
            words=agent.skill_instructions,
        )


class OpeningInstructions(msgspec.Struct, frozen=True, kw_only=True):
    """Directory prompt of an agent.

    Attributes:
        blocks: parts of its system prompt.
        skills: skills that it may read.
        below: instructions of directories further down are added when its tools work there.
    """

    blocks: tuple[str, ...] = ()
    skills: tuple[ListedSkill, ...] = ()
    below: bool = False
