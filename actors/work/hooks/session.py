"""What hooks have to say of a run as a whole: of its prompt, of its end, of what an agent is about to forget.

What they say of the prompt and of the end is kept in a durable run, since what follows depends on it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ....protocol.chat import Content, TextPart, text_of
from ....protocol.errors import HookRefused
from ....protocol.hooks import Event
from ..journal.of_run import HOOK
from ..journal.scope import noted
from .answers import Said
from .hooks import Hooks, Input

if TYPE_CHECKING:
    from ....supervisors import Actor

MOST_STOPS = 10
"""How often hooks may have an agent go on that is at its end."""


async def at_beginning(hooks: Hooks, me: Actor, prompt: Content, *, is_new: bool, model: str) -> Content:
    """The prompt, with what hooks add to it.

    Args:
        is_new: nothing was said in this conversation before.

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
    """What an agent that is at its end is told so that it goes on; None if it may end.

    Args:
        depth: how many agents stand above it; again: how often it was told to go on.
    """
    if again >= MOST_STOPS:
        return None
    event: Event = "SubagentStop" if depth else "Stop"
    given: Input = {"stop_hook_active": again > 0}
    if depth:
        given |= {"agent_id": me.path, "agent_type": agent}
    return (await _asked(hooks, me, event, agent if depth else "", given)).refused


async def over(hooks: Hooks, me: Actor) -> None:
    """The run is over, and so is the conversation."""
    await hooks.ask(me, "SessionEnd", "other", {"reason": "other"})


async def before_shortening(hooks: Hooks, me: Actor) -> None:
    """The history is about to be summed up."""
    await hooks.ask(me, "PreCompact", "auto", {"trigger": "auto", "custom_instructions": ""})


async def _asked(hooks: Hooks, me: Actor, event: Event, matched: str, given: Input) -> Said:
    if not hooks.has(event):
        return Said()
    said = await noted(me, HOOK.format(event), Said, partial(hooks.ask, me, event, matched, given))
    if said.ends is not None:
        raise HookRefused(said.ends)
    return said
