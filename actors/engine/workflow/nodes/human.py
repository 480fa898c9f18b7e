"""human nodes: a user sees the queued messages, and the answer is the output.

The question is passed to the root like the questions of approval and input nodes, also from subgraphs. Only this
node waits. Images and files appear as names and sizes, because front ends show questions as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .....protocol.chat import FilePart, ImagePart, TextPart, parts_of
from .....protocol.kernel.questions import Question
from .....protocol.workflow.model import HumanConfig
from .....supervisors import Actor
from ..job import Job
from ..machine.perform import Said
from ..messages import Message, heading, remembered


async def run_human_node(me: Actor, job: Job) -> Said:
    """Show the inputs and the node's memories to the user; return the answer, and write it to those memories."""
    config = job.node.config
    assert isinstance(config, HumanConfig)
    blocks = [config.description.strip()] if config.description and config.description.strip() else []
    blocks += input_blocks(job.inputs)
    memories = job.resources.memories if config.memories else None
    if memories is not None:
        blocks += remembered(await memories.recall(me, job.node, "gen", job.inputs, also="pre_gen_thinking"))
    question = Question(id="", actor="", node=job.node.id, kind="text", text="\n\n".join(blocks))
    answer = (await me.ask_person(question)).text
    if memories is not None:
        await memories.remember(me, job.node, job.inputs, answer)
    return Said(outputs=(Message(role="user", content=answer),))


def input_blocks(inputs: Sequence[Message]) -> Iterator[str]:
    """Yield each input as a block of text under a heading with its source."""
    for message in inputs:
        yield heading(message) + "\n".join(_as_text(part) for part in parts_of(message.content))


def _as_text(part: TextPart | ImagePart | FilePart) -> str:
    match part:
        case TextPart(text=text):
            return text
        case ImagePart(url=url) if url and not url.startswith("data:"):
            return f"[image: {url}]"
        case ImagePart(media_type=media_type, data=data):
            return f"[image: {media_type}, {len(data)} bytes]"
        case FilePart(name=name, data=data):
            return f"[file: {name}, {len(data)} bytes]"
