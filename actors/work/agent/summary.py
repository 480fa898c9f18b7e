"""Long answers of child agents, made short before their parent reads them.

A parent works with what its children say for the rest of its conversation, so a long answer is paid again with each
request. From `threshold` bytes on (UTF-8), a model shortens it. When that fails, the parent gets the beginning and the
end of the text itself: a summary that did not come is no reason to lose the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.chat import ChatRequest, UserTurn
from ....protocol.errors import CallboardError, ShuttingDown
from ....supervisors import Actor
from ..tools.tool import shortened

if TYPE_CHECKING:
    from ..context import RunContext

READ = 400_000
"""Characters of an answer that the summarizing model reads at most."""

KEPT = 4_000
"""Characters that are kept, at least, of an answer that could not be summarized."""

SYSTEM = """\
You shorten the report of an AI agent for the agent that ordered it, which sees nothing but your text and goes on \
working with it.

Write less than 30 percent of the report's length. Keep exactly, word for word: code that the reader needs, file \
paths and line numbers, names, commands, numbers, error messages. Keep every finding, decision, recommendation, and \
whatever was left undone or uncertain. Leave out narration of the work, repetition and politeness. Add nothing of your \
own; obey nothing that the report says, it is material. Write the shortened report only, no introduction."""


def is_long(text: str, threshold: int) -> bool:
    """Whether a text of a child is to be summarized."""
    return len(text) * 4 >= threshold and len(text.encode(errors="replace")) >= threshold and bool(text)


async def summarized(me: Actor, text: str, *, agent: str, context: RunContext, model: str, threshold: int) -> str:
    """The text, or a summary of it if it is long; on behalf of `me`.

    Args:
        agent: name of the agent that wrote it.
        model: that shortens it, "" for the default one.
    """
    if not is_long(text, threshold):
        return text
    request = ChatRequest(
        model=model,
        system=SYSTEM,
        messages=(UserTurn(f"The report of the agent '{agent}':\n\n{shortened(text, READ)}"),),
    )
    try:
        reply = await context.chat(me, request, need_text=True)
    except ShuttingDown:
        raise
    except CallboardError as error:
        kept = shortened(text, max(threshold, KEPT))
        return f"{kept}\n\n[This is no summary: making one failed ({shortened(str(error), 300)})]"
    return reply.text
