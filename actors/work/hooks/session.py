"""Hooks of a run as a whole: at its prompt, at its end, and before compaction.

A durable run stores the answers about the prompt and the end, since later steps depend on them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ....protocol.chat import Content, TextPart, text_of
from ....protocol.errors import HookRefused
from ....protocol.hooks import Event
from ..journal.of_run import HOOK
from ..journal.scope import noted
from .answers import HookAnswers
from .hooks import Hooks, Input

if TYPE_CHECKING:
    from ....supervisors import Actor

MOST_STOPS = 10
"""Maximum number of times that hooks may make an ending agent continue."""


async def at_beginning(hooks: Hooks, me: Actor, prompt: Content, *, is_new: bool, model: str) -> Content:
    """Return the prompt with the text that hooks add.

    Args:
        is_new: the conversation has no earlier turns.

    Raises:
        HookRefused: a hook refuses the prompt.
    """
    told: list[str] = []
    if is_new:
        told += (await _asked(hooks, me, "SessionStart", "startup", {"source": "startup", "model": model})).context
    said = await _asked(hooks, me, "UserPromptSubmit", "", {"prompt": text_of(prompt)})
    if said.refused is not None:
        raise HookRefused(said.refused)
    told += said.context
    if not told:
        return prompt
    added = "\n\n".join(f"[Added by a hook:]\n{text}" for text in told)
    return f"{prompt}\n\n{added}" if isinstance(prompt, str) else (*prompt, TextPart(added))


async def at_end(hooks: Hooks, me: Actor, *, agent: str, depth: int, again: int) -> str | None:
    """Return the text with which an agent must continue instead of ending; None if it may end.

    Args:
        depth: number of agents above it.
        again: number of times that hooks already made it continue.
    """
    # A hook that never accepts the end would keep the agent running forever.
    if again >= MOST_STOPS:
        return None
    event: Event = "SubagentStop" if depth else "Stop"
    given: Input = {"stop_hook_active": again > 0}
    if depth:
        given |= {"agent_id": me.path, "agent_type": agent}
    return (await _asked(hooks, me, event, agent if depth else "", given)).refused


async def over(hooks: Hooks, me: Actor) -> None:
    """Run the hooks for the end of the conversation."""
    await hooks.ask(me, "SessionEnd", "other", {"reason": "other"})


async def before_shortening(hooks: Hooks, me: Actor) -> None:
    """Run the hooks before a compaction."""
    await hooks.ask(me, "PreCompact", "auto", {"trigger": "auto", "custom_instructions": ""})


async def _asked(hooks: Hooks, me: Actor, event: Event, matched: str, given: Input) -> HookAnswers:
    if not hooks.has(event):
        return HookAnswers()
    # `noted` stores the answer, so that a resumed run neither asks again nor gets another answer.
    said = await noted(me, HOOK.format(event), HookAnswers, partial(hooks.ask, me, event, matched, given))
    if said.ends is not None:
        raise HookRefused(said.ends)
    return said
