"""agent nodes: a model gets the queued messages, may use tools and memories, and its answer is the output.

    memories of stage gen            in front of the last message to the model
    the conversation                 until it calls no more tools
    reflection                       if the node has `thinking`: what it says then is the answer
    memories are written             whatever they are read for

With `provider: callboard` another agent does the work, as a child of this node: it has a model, tools and rounds of its
own, and gets inputs, role and memories as one prompt. Its name may be a YAML file: of a graph, of another workflow.
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
from .....protocol.workflow.agents import Stage
from .....protocol.workflow.model import AgentConfig
from ....work.context import AgentCall
from ....work.record import Record
from ....work.told import Told
from ....work.tools.calls import Around, Player
from ....work.tools.tool import Tool
from ...conversation.play import Conversation, OutOfTurns, Talk
from ..agents.request import CALLBOARD, Params, model_of, policy_of, read_params
from ..agents.tooling import tools_of_node, wants_servers
from ..machine.dynamic import role_of
from ..machine.perform import Said
from ..memory.memories import Recalled
from ..messages import Message
from ..plan import Job
from ..prompting import conversation, headed_text, reflection, remembering

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ....work.mcp.tools.view import Talk as ServersTalk
    from ....work.tools.tool import Tool


async def run_agent_node(me: Actor, job: Job) -> Said:
    """Have it answer.

    Raises:
        GraphMistake: what the file says can't be done: no such provider, agent or function.
        CallboardError: model, tools or memories could not be had.
    """
    agent = _Agent(me, job)
    config, node, inputs = agent.config, job.node, job.inputs
    memories, rules = job.resources.memories, job.shared.plan.rules
    thinks = config.thinking is not None and config.provider != CALLBOARD
    early: Recalled = []
    if thinks and rules.early_memories_count:
        early = await memories.recall(me, node, "pre_gen_thinking", inputs)
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
        self._told = Told()

    async def by_model(self, role: str | None, beside: Recalled, early: Recalled) -> tuple[str, tuple[Message, ...]]:
        """The answer, and the turns of its tool loop if it called any."""
        config, job, inputs = self.config, self._job, self._job.inputs
        params = read_params(config.params)
        model = model_of(config, job.shared.context)
        skills: Tool | None = None
        if config.skills is not None and config.skills.enabled:
            from ..agents.skills import skills_of

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
        from ....work.around import AroundCalls

        return AroundCalls(None, self._told)

    async def _answer(
        self, params: Params, model: str, messages: Sequence[Message], tools: Mapping[str, Tool]
    ) -> tuple[str, Sequence[Turn]]:
        system, turns = _as_turns(messages)
        request = params.completed(ChatRequest(model=model, system=system, messages=turns), self.config.params)
        if not self._job.node.log_output:  # what streams in is emitted in pieces
            request = msgspec.structs.replace(request, stream=False)
        settled = Talk(
            name=self._me.name,
            tools=tools,
            max_turns=params.tool_loop_limit,
            bound="tool_loop_limit",
            node=self._job.node.id,
        )
        context = self._shared.context
        settles = context.settles(None)
        flow = None if context.flow is None else context.flow.below()
        player = Player(
            tools,
            context.permissions,
            meter=context.meter,
            on_unknown=settles,
            hooks=context.hooks,
            flow=flow,
            around=self._around(),
        )
        attempts = policy_of(self.config.retry)
        talk = Conversation(context, settled, player, request, self._shared.record, attempts=attempts)
        try:
            if not params.timeout:
                await talk.reply(self._me)
            else:
                with self._me.time_limit(trio.move_on_after(params.timeout)) as scope:
                    await talk.reply(self._me)
                if scope.cancelled_caught:
                    raise TimedOut(f"{self.config.name} did not answer within {params.timeout:g} s (`params.timeout`)")
        except OutOfTurns as error:
            text = f"{error}; what the model said last is the answer"
            self._me.emit(Warned(code="tool_loop_limit", message=text, node=self._job.node.id))
        if flow is not None:
            flow.over(talk.messages, tools)
        said = talk.messages[len(turns) :]
        texts = [turn.text for turn in said if isinstance(turn, AssistantTurn)]
        return texts[-1] if texts else "", said

    @contextmanager
    def _talk(self, model: str) -> Iterator[ServersTalk | None]:
        if not wants_servers(self.config.tooling):
            yield None
            return
        from ....work.mcp.tools.view import Talk as ServersTalk

        with self._job.resources.servers(self._me).inner(self._me.path) as scope:
            yield ServersTalk(scope=scope, context=self._shared.context, model=model)

    async def by_another(self, role: str | None, beside: Recalled) -> tuple[str, tuple[CallboardError, ...]]:
        """What another agent answers, and the failures that it went on over."""
        name, directory, inputs = self.config.name, self._shared.plan.file.parent, self._job.inputs
        context, depth = self._shared.context.below({}, None), self._shared.depth + 1
        is_file = name.endswith((".yaml", ".yml"))
        unknown = None if is_file else context.unknown_agent(name, directory)
        if unknown is not None:
            raise GraphMistake(unknown)
        too_deep = context.too_deep(depth)
        if too_deep is not None:
            raise NodeFailed(too_deep)
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
    """System prompt and history. Providers know one system prompt only, so all that is said as system goes there."""
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
    """What a node with a context window remembers of a tool loop; nothing if there was none."""
    said = [turn for turn in turns if isinstance(turn, AssistantTurn)]
    if not any(turn.tool_calls for turn in said):
        return ()
    return tuple(Message(role="assistant", content=turn.text) for turn in said)


def _merged(first: Recalled, second: Recalled) -> Recalled:
    found: dict[str, dict[str, None]] = {}
    for store, items in (*first, *second):
        found.setdefault(store, {}).update(dict.fromkeys(items))
    return [(store, list(items)) for store, items in found.items()]
