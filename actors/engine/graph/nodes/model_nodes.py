"""llm, agent and rag nodes: ask a model, another agent, or a knowledge base.

An llm node sends a prompt to a model in a fresh context, with the tools it lists. An agent node runs another agent as
its child. A rag node searches its knowledge base, which is built before the graph begins.

The answer of a model or agent with an `output_schema` is read in up to three stages:

1. The JSON in the text itself: after a `<think>` block, in a fence, among other words, with a trailing comma, encoded
   twice (`values_in`).
2. An extractor call: the model converts the text to the schema.
3. One repair call: the model gets its answer and all validation errors.

The result fits the schema (JSON Schema 2020-12, or the draft that its `$schema` names). Loki 0.4.0 accepts any JSON
(`Compat.schema_is_a_hint`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import msgspec

from .....protocol.chat import ChatReply, ChatRequest, UserTurn
from .....protocol.errors import CallboardError, ModelError, NodeFailed, UpstreamError
from .....protocol.graph import AgentNode, LlmNode, RagNode
from .....protocol.json_values import NotJson, decode, values_in
from .....supervisors import Actor, Retry
from ....io.imports import imported
from ....io.json_schema import LIBRARY, schema_errors
from ....work.agent.prompt import system_prompt
from ....work.context import AgentCall, CallingAgent
from ....work.journal.actor_journal import noted
from ....work.journal.run_journal import REPLY
from ....work.opening_instructions import OpeningInstructions
from ....work.playback import playback, value
from ....work.tools.calls import Around, CallPlayer
from ....work.tools.tool import Tool
from ....work.transcript import Record
from ...conversation.agent import AROUND
from ...conversation.run import Conversation, ConversationSetup, OutOfTurns, Renewal, RenewedTools
from ..plan import NodeJob, NodeResult
from ..result import NEVER_TOLERATED, ExtractionFailed, reworded
from ..templates import render

_THOUGHT = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)

EXTRACTOR = """You turn text into data. Read the text you are given and answer with one JSON value that fits this \
JSON Schema. Use only what the text says; where it says nothing, use an empty or null value that the schema allows. \
Answer with the JSON alone.

{schema}"""


async def run_llm_node(me: Actor, job: NodeJob) -> NodeResult:
    """Send the prompt to the model and return its answer, converted to the `output_schema` if the node has one.

    The keys of a converted answer that is an object become writes.
    """
    node = job.node
    assert isinstance(node, LlmNode)
    prompt = job.strict(node.prompt)
    system = job.strict(node.instructions) if node.instructions else ""
    schema = node.output_schema
    if schema is None:
        return NodeResult(output=await _answer(me, job, system, prompt), scope="output")
    if system:
        system = f"{system}\n\n{schema_hint(schema)}"
    else:
        prompt = f"{prompt}\n\n{schema_hint(schema)}"
    text = await _answer(me, job, system, prompt, schema=schema)
    value = await extract(me, job, text, schema)
    return NodeResult(output=value, writes=dict(value) if isinstance(value, dict) else {}, scope="output")


async def extract(me: Actor, job: NodeJob, text: str, schema: dict[str, Any]) -> Any:
    """Return the value of a text that fits the schema; the node's own model serves as extractor (see the module).

    Raises:
        ExtractionFailed: the extractor returned no valid value, or its model failed (with that error's exit code).
    """
    node = job.node
    attempts = node.max_attempts if isinstance(node, LlmNode) else 3

    async def ask(system: str, prompt: str) -> str:
        request = _request(job, system, prompt, schema)
        chat = partial(job.context.chat, me, request, node=node.id, attempts=attempts)
        return (await noted(me, REPLY, ChatReply, chat)).text

    try:
        return await structured(text, schema, ask, any_json=job.plan.compat.schema_is_a_hint)
    except ModelError as error:
        # A new class selects the error text of extractions; the exit code must survive.
        failed = ExtractionFailed(str(error))
        failed.exit_code = error.exit_code
        raise failed from error


async def _answer(me: Actor, job: NodeJob, system: str, prompt: str, schema: dict[str, Any] | None = None) -> str:
    node = job.node
    assert isinstance(node, LlmNode)
    if job.context.workspace is not None:
        await imported(AROUND)
    told, own = _opening_instructions(me, job), job.plan.tools.get(node.id, ())
    system = _saying(system, told.blocks)
    if told.skills:
        from ....work.skills import skill_tool

        own = (*own, skill_tool(None if job.context.workspace is None else job.context.workspace.skills, told.skills))
    wanted = job.plan.servers.get(node.id)
    if wanted is None:
        return await _talk(me, job, system, prompt, own, {}, schema, told)
    from ....work.mcp.tools.tool_list import ConversationTools

    assert job.servers is not None
    with job.servers.conversation(me) as talk:
        offering = ConversationTools(talk, wanted, taken={tool.name for tool in own}, node=node.id)

        async def renewed(me: Actor) -> RenewedTools | None:
            now = await offering.renewed(me)
            if now is None:
                return None
            return RenewedTools(
                tools=(*own, *now.tools), unlisted=now.unlisted, system=_saying(system, now.prompt_lines)
            )

        offered = await offering.first(me)
        tools = (*own, *offered.tools)
        return await _talk(
            me, job, _saying(system, offered.prompt_lines), prompt, tools, offered.unlisted, schema, told, renewed
        )


def _saying(system: str, blocks: Sequence[str]) -> str:
    """Add blocks to the node's system prompt; without blocks it is unchanged byte for byte."""
    return system_prompt(system, blocks) if blocks else system


def _opening_instructions(me: Actor, job: NodeJob) -> OpeningInstructions:
    """Return the instructions from the run's directory that the node requests."""
    wish, workspace = job.plan.wishes.get(job.node.id), job.context.workspace
    if wish is None or (workspace is None and playback.get() is None):
        return OpeningInstructions()
    return value(
        me,
        "workspace",
        OpeningInstructions,
        OpeningInstructions if workspace is None else partial(workspace.opening_instructions, wish),
    )


async def _talk(
    me: Actor,
    job: NodeJob,
    system: str,
    prompt: str,
    tools: tuple[Tool, ...],
    unlisted: Mapping[str, Tool],
    schema: dict[str, Any] | None,
    told: OpeningInstructions,
    renewal: Renewal | None = None,
) -> str:
    node = job.node
    assert isinstance(node, LlmNode)
    if not tools:
        request = _request(job, system, prompt, schema)
        # Without tools a single request suffices, which a durable run journals as one row.
        chat = partial(job.context.chat, me, request, node=node.id, attempts=node.max_attempts, need_text=True)
        reply = await noted(me, REPLY, ChatReply, chat)
        job.record.turns += 1
        job.record.texts.append(reply.text)
        return reply.text
    # Most providers reject a response schema together with tools; the schema is applied to the answer afterwards.
    request = msgspec.structs.replace(_request(job, system, prompt, None), messages=())
    context, listed = job.context, {tool.name: tool for tool in tools}
    settled = ConversationSetup(
        name=me.name,
        tools=listed,
        unlisted=unlisted,
        max_turns=node.max_iterations,
        bound="max_iterations",
        node=node.id,
        looks_around=renewal is not None,
    )
    if context.flow is not None:  # server descriptions enter the model's context, so they carry taint labels
        context.flow.describes(tools)
    player = CallPlayer(
        {**unlisted, **listed},
        context.permissions,
        own=job.plan.permissions,
        meter=context.meter,
        on_unknown=context.settles(node.on_unknown),
        around=None if told == OpeningInstructions() else _around(job, told),
        hooks=context.hooks,
        flow=context.flow,
        agent=CallingAgent(
            context=context,
            name=node.id,
            depth=job.depth,
            record=job.record,
            permissions=job.plan.permissions,
            max_depth=job.plan.max_depth,
        ),
    )
    talk = Conversation(
        context, settled, player, request, job.record, attempts=node.max_attempts, need_text=True, renewal=renewal
    )
    try:
        return (await talk.say(me, prompt)).text
    except OutOfTurns as error:
        failed = NodeFailed(str(error))
        failed.exit_code = error.exit_code
        raise failed from error


def _around(job: NodeJob, told: OpeningInstructions) -> Around:
    from ....work.workspace import AroundCalls

    return AroundCalls(job.context.workspace, told)


def _request(job: NodeJob, system: str, prompt: str, schema: dict[str, Any] | None) -> ChatRequest:
    plan, node = job.plan, job.node
    temperature = getattr(node, "temperature", None)
    top_p = getattr(node, "top_p", None)
    own = getattr(node, "reasoning_effort", None), getattr(node, "thinking_budget", None)
    # Inherited as a pair: a node that sets one of them does not inherit the other.
    effort, budget = (plan.reasoning_effort, plan.thinking_budget) if own == (None, None) else own
    return ChatRequest(
        model=job.context.model_for(plan.model, own=getattr(node, "model", None)),
        messages=(UserTurn(prompt),),
        system=system,
        response_schema=schema,
        temperature=plan.temperature if temperature is None else temperature,
        top_p=plan.top_p if top_p is None else top_p,
        reasoning_effort=effort,
        thinking_budget=budget,
    )


def schema_hint(schema: dict[str, Any]) -> str:
    """Return the prompt's instruction about the format of the answer."""
    head = "Answer with one JSON value that fits this JSON Schema, and nothing else: no prose, no fences."
    return f"{head}\n\n{render(schema)}"


async def structured(
    text: str, schema: dict[str, Any], ask: Callable[[str, str], Awaitable[str]], *, any_json: bool = False
) -> Any:
    """Return the JSON value in `text`, with up to two calls of a model if needed.

    Raises:
        ExtractionFailed: no call returned a valid value.
    """
    await imported(*LIBRARY)
    value, wrong = read_json(text, schema)
    if wrong and any_json:
        value, wrong = read_json(text, None)
    if not wrong:
        return value
    system, question, answer = EXTRACTOR.format(schema=render(schema)), text.strip() and text, ""
    # The extractor call, then one repair call.
    for _ in range(2):
        answer = await ask(system, question or "(the text is empty)")
        value, wrong = read_json(answer, schema)
        if wrong and any_json:
            value, wrong = read_json(answer, None)
        if not wrong:
            return value
        listed = "\n".join(f"- {error}" for error in wrong)
        question = (
            f"The text:\n{text}\n\nYour answer was:\n{answer}\n\nThat does not fit the schema:\n{listed}\n\n"
            "Answer again with corrected JSON alone."
        )
    raise ExtractionFailed(
        "Structured-output extractor failed to produce valid JSON after repair retry. "
        f"Last response:\n{answer}\nWhat is wrong with it: " + "; ".join(wrong)
    )


def read_json(text: str, schema: dict[str, Any] | None) -> tuple[Any, list[str]]:
    """Return the JSON value of a model's text and all its validation errors (an empty list for none).

    Without a schema, the JSON must be the whole text or in a fence.
    """
    first: tuple[Any, list[str]] | None = None
    for found in values_in(_THOUGHT.sub("", text), among_words=schema is not None):
        wrong = [] if schema is None else schema_errors(found, schema)
        if not wrong:
            return found, []
        first = first or (found, wrong)
    if first is not None:
        return first
    try:
        decode(text)
    except NotJson as error:
        return None, [f"it is not JSON: {error}"]
    return None, ["it is not JSON"]


async def run_agent_node(me: Actor, job: NodeJob) -> NodeResult:
    """Run the child agent and return its text, converted to the `output_schema` if the node has one.

    The keys of a converted answer that is an object become writes.

    Raises:
        NodeFailed: the child would exceed the maximum depth of agents.
        ExtractionFailed: the text could not be converted.
    """
    node = job.node
    assert isinstance(node, AgentNode)
    depth = job.depth + 1
    context = job.context.below(job.plan.permissions, job.plan.max_depth).settling(node.on_unknown)
    too_deep = context.too_deep(depth)
    if too_deep is not None:
        raise NodeFailed(too_deep)
    prompt = job.strict(node.prompt)
    inputs = {name: job.strict(template) for name, template in node.inputs.items()}
    call = AgentCall(
        name=node.agent,
        prompt=prompt,
        variables=inputs,
        depth=depth,
        near=job.plan.directory,
        context=context,
        by_file=True,
        place=node.place,
    )
    text = await _with_attempts(me, job, node, call)
    if node.output_schema is None:
        return NodeResult(output=text, scope="output")
    try:
        value = await extract(me, job, text, node.output_schema)
    except ExtractionFailed as error:
        whose = f"Agent '{node.agent}' output failed structured-output extraction"
        raise reworded(error, f"{whose}: {error}") from error
    return NodeResult(output=value, writes=dict(value) if isinstance(value, dict) else {}, scope="output")


async def _with_attempts(me: Actor, job: NodeJob, node: AgentNode, call: AgentCall) -> str:
    """Run the child up to `max_attempts` times, each time as a new actor, without backoff."""
    retry = Retry(most=node.max_attempts, patience=math.inf)
    for attempt in count(1):
        record = Record()
        try:
            return await call.context.run_agent(me, msgspec.structs.replace(call, record=record, attempt=attempt))
        except UpstreamError as error:
            if retry.wait(attempt, error) is None:
                raise
            record.failures.clear()  # this attempt is replaced by the next
        finally:
            job.failures += record.failures
    raise AssertionError("count() has no end")


async def run_rag_node(me: Actor, job: NodeJob) -> NodeResult:
    """Search the node's knowledge base for the query; the result is `{context, sources, chunks}`.

    The writes of the node are only those of its `state_updates`.
    """
    node = job.node
    assert isinstance(node, RagNode)
    query = job.strict(node.query)
    if job.context.flow is not None:
        job.context.flow.knows([job.plan.recipes[node.id]])
    try:
        found = await job.context.knowledge.retrieve(me, [job.plan.recipes[node.id]], query, top_k=node.top_k)
    except CallboardError as error:
        if isinstance(error, NEVER_TOLERATED):
            raise
        raise reworded(error, f"rag node '{node.id}' retrieval failed: {error}") from error
    chunks = [
        {"text": hit.text, "source": hit.source, "score": hit.score, "lines": list(hit.lines)} for hit in found.chunks
    ]
    output = {"context": found.context, "sources": list(found.sources), "chunks": chunks}
    return NodeResult(output=output, scope="output")
