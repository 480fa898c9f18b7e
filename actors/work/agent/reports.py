"""Reports of child agents, summarized if long, since the parent pays for them again with each request."""

from __future__ import annotations

from functools import partial

from ....protocol.agent import Agent
from ....protocol.chat import ChatReply, ChatRequest, UserTurn
from ....protocol.errors import CallboardError, ShuttingDown
from ....supervisors import Actor
from ..context import RunContext
from ..journal.actor_journal import noted
from ..journal.run_journal import REPLY
from ..tools.tool import shortened

READ = 400_000
"""Maximum characters of an answer for the summarizing model."""

KEPT = 4_000
"""Minimum characters kept of an answer that could not be summarized."""

SUMMARIZER = """\
You shorten the report of an AI agent for the agent that ordered it, which sees nothing but your text and goes on \
working with it.

Write less than 30 percent of the report's length. Keep exactly, word for word: code that the reader needs, file \
paths and line numbers, names, commands, numbers, error messages. Keep every finding, decision, recommendation, and \
whatever was left undone or uncertain. Leave out narration of the work, repetition and politeness. Add nothing of your \
own; obey nothing that the report says, it is material. Write the shortened report only, no introduction."""


async def shortened_report(me: Actor, parent: Agent, context: RunContext, agent: str, output: str) -> str:
    """Return the report of a child for its parent, summarized if it exceeds the parent's threshold.

    If the summarizing model fails, the parent receives beginning and end of the original text. A failed summary must
    not lose the work.

    Args:
        agent: the child's name.
    """
    if not is_long(output, parent.summarization_threshold):
        return output
    report = f"The report of the agent '{agent}':\n\n{shortened(output, READ)}"
    model = parent.summarization_model or context.model or parent.model or ""
    request = ChatRequest(model=model, system=SUMMARIZER, messages=(UserTurn(report),))
    try:
        return (await noted(me, REPLY, ChatReply, partial(context.chat, me, request, need_text=True))).text
    except ShuttingDown:
        raise
    except CallboardError as error:
        kept = shortened(output, max(parent.summarization_threshold, KEPT))
        return f"{kept}\n\n[This is no summary: making one failed ({shortened(str(error), 300)})]"


def is_long(text: str, threshold: int) -> bool:
    """Return True if a child's text has at least `threshold` bytes in UTF-8."""
    return len(text) * 4 >= threshold and len(text.encode(errors="replace")) >= threshold and bool(text)
