"""agent nodes: a model receives the queued messages, can use tools and memories, and its answer is the output.

    memories of stage gen            before the last message to the model
    the conversation                 until the model calls no more tools
    reflection                       if the node has `thinking`: its answer replaces the first
    memories are written             at whatever stage they are read

With `provider: callboard`, another agent runs as a child of this node: it has its own model, tools and turns, and
receives inputs, role and memories as one prompt. Its name can be a YAML file: of a graph or of another workflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from .....protocol.chat import AssistantTurn, ChatRequest, Turn, UserTurn
from .....protocol.errors import CallboardError, GraphMistake, NodeFailed, TimedOut
from .....protocol.events import Warned
from .....protocol.workflow.model import AgentConfig, Stage
from ....work.context import AgentCall
from ....work.opening_instructions import OpeningInstructions
from ....work.tools.calls import Around, CallPlayer
from ....work.tools.tool import Tool
from ....work.transcript import Record
from ...conversation.play import Conversation, ConversationSetup, OutOfTurns
from ..agents.request import CALLBOARD, ModelParams, model_of, policy_of, read_params
from ..agents.tools import tools_of_node, wants_servers
from ..job import Job
from ..machine.perform import Said, role_of
from ..memory.memories import Recalled
from ..messages import Message
from ..prompting import conversation, headed_text, reflection, remembering

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ....work.mcp.tools.view import ServersView as ServersTalk
    from ....work.tools.tool import Tool


async def run_agent_node(me: Actor, job: Job) -> Said:
    """Run the model or agent, and return its answer.

    Raises:
        GraphMistake: the file names an unknown provider, agent or function.
        CallboardError: the model, a tool or a memory is unavailable.
    """
    agent = _Agent(me, job)
    config, node, inputs = agent.config, job.node, job.inputs
    memories, rules = job.resources.memories, job.shared.plan.rules
    thinks = config.thinking is not None and config.provider != CALLBOARD
    early: Recalled = []
    if thinks and rules.early_memories_count:
        early = await memories.recall(me, node, "pre_gen_thinking", inputs)
    # Without reflection both stages are the same moment, so one read serves both.
    also: Stage | None = "pre_gen_thinking" if rules.early_memories_count and not thinks else None
    beside = await memories.recall(me, node, "gen", inputs, also=also)
    role = role_of(job.unit, config.role) if config.role else None
    trace: tuple[Message, ...] = ()
    failures: tuple[CallboardError, ...] = ()
    if config.provider == CALLBOARD:
        said, failures = await agent.by_another(role, beside)
    else:
        said, trace = await agent.by_model(role, beside, early)
    found = await memories.recall(me, node, "finished", inputs, said) if rules.early_memories_count else []
    await memories.remember(me, node, inputs, said)
    # Functions of the node's edges can read these.
    metadata: dict[str, Any] = {"memories": {store: list(items) for store, items in found}} if found else {}
    outputs = (Message(role="assistant", content=said, metadata=metadata),)
    return Said(outputs=outputs, trace=trace, unaccepted=failures)


class _Agent:
    def __init__(self, me: Actor, job: Job) -> None:
        assert isinstance(job.node.config, AgentConfig)
        self.config = job.node.config
        self._me = me
        self._job = job
        self._shared = job.shared
        self._told = OpeningInstructions()

    async def by_model(self, role: str | None, beside: Recalled, early: Recalled) -> tuple[str, tuple[Message, ...]]:
        """Return the answer, and the turns of its tool loop if it called any tool."""
        config, job, inputs = self.config, self._job, self._job.inputs
        params = read_params(config.params)
        model = model_of(config, job.shared.context)
        skills: Tool | None = None
        if config.skills is not None and config.skills.enabled:
            from ..agents.tools import skills_of

            self._told, skills = skills_of(config.skills, job.shared.plan.file.parent, job.shared.context)
        system = "\n\n".join(part for part in (role, *self._told.blocks) if part)
        messages = remembering(conversation(system, inputs, config.input_mode), beside)
        with self._talk(model) as talk:
            tools = await tools_of_node(self._me, job, config.tooling, talk)
            if skills is not None:
                tools.append(skills)
            listed = {tool.name: tool for tool in tools}
            said, turns = await self._answer(params, model, messages, listed)
            if config.thinking is not None:
                late = await job.resources.memories.recall(self._me, job.node, "post_gen_thinking", inputs, said)
                prompt = reflection(messages, said, _merged(early, late), config.thinking.reflection_prompt)
                said, _ = await self._answer(params, model, [Message(role="user", content=prompt)], listed)
        return said, _trace(turns)

    def _around(self) -> Around | None:
        if not self._told.skills:
            return None
        from ....work.workspace import AroundCalls

        return AroundCalls(None, self._told)

    async def _answer(
        self, params: ModelParams, model: str, messages: Sequence[Message], tools: Mapping[str, Tool]
    ) -> tuple[str, Sequence[Turn]]:
        system, turns = _as_turns(messages)
        request = params.completed(ChatRequest(model=model, system=system, messages=turns), self.config.params)
        if not self._job.node.log_output:  # emitted in pieces only if the node logs its output
            request = msgspec.structs.replace(request, stream=False)
        settled = ConversationSetup(
            name=self._me.name,
            tools=tools,
            max_turns=params.tool_loop_limit,
            bound="tool_loop_limit",
            node=self._job.node.id,
        )
        context = self._shared.context
        settles = context.settles(None)
        # Descriptions of tools enter the model's context, so they carry taint labels.
        if context.flow is not None:
            context.flow.describes(tools.values())
        player = CallPlayer(
            tools,
            context.permissions,
            meter=context.meter,
            on_unknown=settles,
            hooks=context.hooks,
            flow=context.flow,
            around=self._around(),
        )
        attempts = policy_of(self.config.retry)
        talk = Conversation(context, settled, player, request, self._shared.record, attempts=attempts)
        try:
            if not params.timeout:
                await talk.reply(self._me)
            else:
                # Not a plain cancel scope: a run must not be unloaded while a time limit counts.
                with self._me.time_limit(trio.move_on_after(params.timeout)) as scope:
                    await talk.reply(self._me)
                if scope.cancelled_caught:
                    raise TimedOut(f"{self.config.name} did not answer within {params.timeout:g} s (`params.timeout`)")
        except OutOfTurns as error:
            text = f"{error}; what the model said last is the answer"
            self._me.emit(Warned(code="tool_loop_limit", message=text, node=self._job.node.id))
        said = talk.messages[len(turns) :]
        texts = [turn.text for turn in said if isinstance(turn, AssistantTurn)]
        return texts[-1] if texts else "", said

    @contextmanager
    def _talk(self, model: str) -> Iterator[ServersTalk | None]:
        if not wants_servers(self.config.tooling):
            yield None
            return
        from ....work.mcp.tools.view import ServersView as ServersTalk

        with self._job.resources.servers(self._me).inner(self._me.path) as scope:
            yield ServersTalk(scope=scope, context=self._shared.context, model=model)

    async def by_another(self, role: str | None, beside: Recalled) -> tuple[str, tuple[CallboardError, ...]]:
        """Return another agent's answer, and its tolerated failures."""
        name, directory, inputs = self.config.name, self._shared.plan.file.parent, self._job.inputs
        context, depth = self._shared.context.below({}, None), self._shared.depth + 1
        is_file = name.endswith((".yaml", ".yml"))
        unknown = None if is_file else context.unknown_agent(name, directory)
        if unknown is not None:
            raise GraphMistake(unknown)
        too_deep = context.too_deep(depth)
        if too_deep is not None:
            raise NodeFailed(too_deep)
        # A single message needs no heading with its source.
        alone = len(inputs) == 1 and self.config.input_mode == "messages"
        task = inputs[0].text if alone else headed_text(inputs)
        memory = [message.text for message in remembering((), beside)]
        record = Record()
        call = AgentCall(
            name=name,
            prompt="\n\n".join(part for part in (role, *memory, task) if part),
            variables={},
            depth=depth,
            near=directory,
            context=context,
            record=record,
            by_file=True,
        )
        return await context.run_agent(self._me, call), tuple(record.failures)


def _as_turns(messages: Sequence[Message]) -> tuple[str, tuple[Turn, ...]]:
    """Return system prompt and history. Providers accept one system prompt, so all system messages are joined."""
    system = "\n\n".join(message.text for message in messages if message.role == "system" and message.text)
    turns: list[Turn] = []
    for message in messages:
        if message.role == "system":
            continue
        if message.role == "assistant":
            turns.append(AssistantTurn(message.text))
        else:
            turns.append(UserTurn(message.content))
    return system, tuple(turns) or (UserTurn(""),)


def _trace(turns: Sequence[Turn]) -> tuple[Message, ...]:
    """Return the turns that a node with a context window stores for a tool loop; nothing without tool calls."""
    said = [turn for turn in turns if isinstance(turn, AssistantTurn)]
    if not any(turn.tool_calls for turn in said):
        return ()
    return tuple(Message(role="assistant", content=turn.text) for turn in said)


def _merged(first: Recalled, second: Recalled) -> Recalled:
    found: dict[str, dict[str, None]] = {}
    for store, items in (*first, *second):
        found.setdefault(store, {}).update(dict.fromkeys(items))
    return [(store, list(items)) for store, items in found.items()]
