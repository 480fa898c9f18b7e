"""Agents as MCP tools, their calls, and the state that all clients of a server share.

`OfferedAgent`: an agent as a tool, read once, when serving begins. A tool's name is the agent's; its arguments are the
prompt, the agent's variables, and the state of a graph. The server decides about an agent's permissions and questions;
a client only gives the task.

`McpToolCall`: a run for a client, from the call to its result. A call may need several requests of the client: from
2026-07-28 on, a question ends the request, and the client calls again with the answer. So the run is an actor of its
own, and requests wait in `news` for its next question or its end. Between two requests the run is *parked*: it works
where it can, and is cancelled if no request returns for it. Progress is derived from the run's events.

`Service`: agents, active runs, and limits. A run belongs to the server's actor, not to the request that began it.
Questions arrive through a policy at the top of the tree. It holds a question if the run's client can show a form, else
it passes the question on. So a client without forms gets the result of `--no-input`: the question's default, or a
failed run.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Never

import msgspec
import trio

from ....protocol.errors import CallboardError, RunFailed, UsageError
from ....protocol.events import (
    AgentStarted,
    Event,
    EventData,
    LlmRequest,
    NodeEntered,
    QuestionAnswered,
    QuestionExpired,
    RunStarted,
    ToolStarted,
)
from ....protocol.graph import Variable
from ....protocol.kernel.questions import Answer, Question, yes_or_no
from ....protocol.outcome import Outcome
from ....protocol.requests import Limits, RunRequest
from ....supervisors import Actor, Ref
from ....supervisors.bus import Listener
from ....supervisors.escalation import HOLD, PASS, OpenQuestions, Verdict
from ...io.json_schema import schema_errors
from ...io.vault.lookups import ForChecks
from ...runs.begin import perform
from ...runs.finding import find
from ...runs.loading import RunCallbacks
from ...runs.root import Root
from ...runs.target import GraphAgent, Loaded, LoopAgent, read
from ...work.variables import missing_variables

Json = Any

MAX_NAME = 64
"""Maximum length of a tool name at model providers."""


class OfferedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """Agent as a tool.

    Attributes:
        name: name of the tool; the agent's, as far as it is valid.
        agent: agent that a call runs.
        tool: description in `tools/list`.
    """

    name: str
    agent: Loaded
    tool: dict[str, Json]

    @property
    def schema(self) -> dict[str, Json]:
        """JSON Schema of a call's arguments."""
        schema: dict[str, Json] = self.tool["inputSchema"]
        return schema


def read_agents(root: Root, names: Sequence[str | os.PathLike[str]] = ()) -> tuple[dict[str, OfferedAgent], list[str]]:
    """Return the agents to serve by tool name, and the problems of omitted ones.

    Args:
        root: root of their runs.
        names: targets as for `run`. Without any: every agent of the configuration directory, except those with errors.
            The built-in ones, some of which write files and run programs, are served only by name.

    Raises:
        UsageError: there is no such agent, or none at all, or two would have the same tool name.
        InvalidFile, Unsupported: a named agent can't be run.
    """
    here = root.config_dir / "agents"
    found = names or sorted(path for path in here.iterdir() if path.is_dir()) if here.is_dir() or names else []
    offers: dict[str, OfferedAgent] = {}
    secrets = ForChecks(root.vault)
    problems: list[str] = []
    for target in found:
        try:
            agent = read(find(target, config_dir=root.config_dir), root.config_dir, registry=root.registry)
            offer = _offer(agent, secrets)
        except CallboardError as error:
            if names:
                raise
            problems.append(f"{target} is not served: {error}")
            continue
        if offer.name in offers:
            raise UsageError(
                f"two agents would be served as '{offer.name}': {offers[offer.name].agent.file} and "
                f"{offer.agent.file}; serve one of them, or change the `name` in one of the files"
            )
        offers[offer.name] = offer
    if not offers:
        raise UsageError(
            (
                f"there is no agent to serve in {here}; name the agents to serve (callboard mcp serve coder), or "
                "create one there (callboard init)"
            )
            + "".join(f"\n{problem}" for problem in problems)
        )
    return offers, problems


def _offer(agent: Loaded, secrets: ForChecks) -> OfferedAgent:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", agent.name)[:MAX_NAME]
    tool = {
        "name": name,
        "description": _description(agent).strip() or f"Runs the agent '{agent.name}' and returns its answer.",
        "inputSchema": _schema(agent, secrets),
    }
    return OfferedAgent(name=name, agent=agent, tool=tool)


def _description(agent: Loaded) -> str:
    if isinstance(agent, GraphAgent):
        return agent.graph.description
    if isinstance(agent, LoopAgent):
        return agent.agent.description
    return agent.workflow.graph.description or ""


def _schema(agent: Loaded, secrets: ForChecks) -> dict[str, Json]:
    prompt: dict[str, Json] = {
        "type": "string",
        "description": "The task of the agent, with all that it needs to know.",
    }
    properties: dict[str, Json] = {"prompt": prompt}
    required = []
    declared: tuple[Variable, ...] = ()
    if isinstance(agent, GraphAgent):
        declared = agent.graph.variables
        if agent.graph.initial_state:
            properties["state"] = {
                "type": "object",
                "description": "Replaces initial values of the graph's state.",
                "properties": {key: {} for key in agent.graph.initial_state},
            }
    elif isinstance(agent, LoopAgent):
        declared = agent.agent.variables
        required.append("prompt")
        prompt["minLength"] = 1
    if declared:
        needed = [
            variable.name for variable in missing_variables(agent.name, declared, {}, os.environ, secrets=secrets)
        ]
        properties["variables"] = {
            "type": "object",
            "properties": {
                variable.name: {"type": "string"}
                | ({"description": variable.description} if variable.description else {})
                | ({} if variable.default is None else {"default": variable.default})
                for variable in declared
            },
            "required": needed,
            "additionalProperties": False,
        }
        if needed:
            required.append("variables")
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


NOTE = 200
"""Maximum characters of a progress message."""


class McpToolCall:
    """Call with its run.

    Attributes:
        offer: agent that runs.
        asks: True if the client's user can be asked.
        questions: open questions by id, oldest first.
        ended: True if the run is over; `result` is then its result, None if the server cancelled it.
        on_progress: callback for the number of steps and the next one; None without a listener.
    """

    def __init__(
        self, offer: OfferedAgent, desk: OpenQuestions, *, asks: bool, began: Callable[[str, McpToolCall], None]
    ) -> None:
        self.offer = offer
        self.asks = asks
        self.questions: dict[str, Question] = {}
        self.ended = False
        self.result: Outcome | CallboardError | None = None
        self.on_progress: Callable[[int, str], None] | None = None
        self._desk = desk
        self._began = began
        self._steps = 0
        self._scope = trio.CancelScope()
        self._news = trio.Event()

    async def play(self, _: Actor, run: Callable[[Listener], Awaitable[Outcome]]) -> None:
        """Execute `run`, given a listener for its events, to its end. Body of the call's actor."""
        try:
            with self._scope:
                self.result = await run(self._heard)
        except CallboardError as error:
            self.result = error
        except Exception as crash:  # the caller gets it too, and the server continues
            self.result = RunFailed(f"'{self.offer.name}' crashed: {crash!r}")
            raise
        finally:
            self.ended = True
            self.questions.clear()
            self._news.set()

    def cancel(self) -> None:
        """Request the cancellation of the run, and return at once."""
        self._scope.cancel()

    async def news(self) -> None:
        """Wait until the run has ended, or its questions have changed. Only one task may wait at a time."""
        await self._news.wait()
        self._news = trio.Event()

    # --- questions ------------------------------------------------------------------------------------------

    def ask(self, question: Question) -> None:
        """Add a question of the run, which the client is asked."""
        self.questions[question.id] = question
        self._news.set()

    def answer(self, question_id: str, result: Mapping[str, Json]) -> None:
        """Process the user's answer. If there is none, the question passes to the next policy."""
        question = self.questions.pop(question_id, None)
        if question is None:
            return  # withdrawn meanwhile
        value = answer(question, result)
        if value is None:
            self._desk.pass_on(question_id)
        else:
            self._desk.answer(question_id, value, by="mcp client")

    def expire(self, question_id: str, seconds: float) -> None:
        """Expire a question that the user did not answer in time."""
        if self.questions.pop(question_id, None) is not None:
            self._desk.expire(question_id, seconds)

    # --- events ---------------------------------------------------------------------------------------------

    def _heard(self, event: Event) -> None:
        data = event.data
        if isinstance(data, RunStarted):
            self._began(event.run, self)
        elif isinstance(data, QuestionAnswered | QuestionExpired):
            if self.questions.pop(event.id, None) is not None:
                self._news.set()
        elif (note := _step(data)) is not None:
            self._steps += 1
            if self.on_progress is not None:
                self.on_progress(self._steps, note[:NOTE])

    def to_wire(self) -> dict[str, Json]:
        """Return the result of the run as MCP's `CallToolResult`."""
        result = self.result
        if isinstance(result, Outcome):
            wire = msgspec.to_builtins(result)
            shown = {key: wire[key] for key in _SHOWN if wire[key] not in (None, [])}
            if result.error is None and result.status == "done":
                return tool_result(result.output, shown)
            reason = f"The run was {result.status}" if result.error is None else result.error.message
            return tool_result(reason, {**shown, "exit_code": result.exit_code}, failed=True)
        if isinstance(result, CallboardError):
            error = {"code": result.code, "message": str(result)}
            return tool_result(
                str(result), {"status": "failed", "error": error, "exit_code": result.exit_code}, failed=True
            )
        return tool_result("The run was cancelled.", {"status": "cancelled"}, failed=True)


_SHOWN = ("run_id", "status", "output", "usage", "priced", "turns", "tool_calls", "failures", "error")
"""Fields of an outcome that clients get; the state may contain private data."""


def tool_result(text: str, structured: Json = None, *, failed: bool = False) -> dict[str, Json]:
    """Return a text as MCP's `CallToolResult`."""
    result: dict[str, Json] = {"content": [{"type": "text", "text": text}]}
    if structured is not None:
        result["structuredContent"] = structured
    if failed:
        result["isError"] = True
    return result


def _step(data: EventData) -> str | None:
    if isinstance(data, NodeEntered):
        return f"node {data.node} ({data.type})"
    if isinstance(data, LlmRequest):
        return f"asks {data.model}"
    if isinstance(data, ToolStarted):
        return f"calls {data.tool}"
    if isinstance(data, AgentStarted) and data.depth > 0:
        return f"agent {data.agent}"
    return None


LISTS_SINCE = "2025-11-25"
"""First revision with form fields for several options; dates compare as text."""


def can_be_asked(question: Question) -> bool:
    """Return True if a form of MCP can ask this kind of question."""
    return not question.secret


def takes_forms(capabilities: Mapping[str, Json]) -> bool:
    """Return True if a client with these capabilities shows forms; one that only opens URLs does not."""
    elicitation = capabilities.get("elicitation")
    return isinstance(elicitation, dict) and ("form" in elicitation or "url" not in elicitation)


def form(question: Question, version: str) -> dict[str, Json]:
    """Return a question as the parameters of MCP's `elicitation/create`."""
    lines = [question.text, question.problem, question.rule]
    fields: dict[str, Json] = {"answer": _field(question, version)}
    required = ["answer"]
    if question.kind == "choice" and question.free and question.permission is None:
        fields["other"] = {
            "type": "string",
            "title": "In your own words",
            "description": "If none of the options fits.",
        }
        required = []
    return {
        "mode": "form",
        "message": "\n".join(line for line in lines if line),
        "requestedSchema": {"type": "object", "properties": fields, "required": required},
    }


def _field(question: Question, version: str) -> dict[str, Json]:
    options, default = list(question.options), question.default
    if question.permission is not None and "no" in options:
        default = "no"  # a form submitted without reading allows nothing
    if question.kind == "confirm":
        return {"type": "boolean"} | ({} if default is None else {"default": yes_or_no(default) == "yes"})
    if question.kind == "choice" and options:
        return {"type": "string", "enum": options} | ({"default": default} if default in options else {})
    if question.kind == "checkbox" and version >= LISTS_SINCE:
        return {"type": "array", "items": {"type": "string", "enum": options}}
    if question.kind == "checkbox":
        return {"type": "string", "description": f"Any of these, separated by commas: {', '.join(options)}"}
    return {"type": "string"} | ({} if default is None else {"default": default})


def answer(question: Question, result: Mapping[str, Json]) -> str | list[str] | None:
    """Return the answer in an `ElicitResult`; None if the user gave none.

    Declining a question that can be answered with no means no.
    """
    content = result.get("content")
    if result.get("action") != "accept":
        can_say_no = question.kind == "confirm" or question.permission is not None
        return "no" if can_say_no and result.get("action") == "decline" else None
    if not isinstance(content, dict):
        return None
    value = content.get("other") or content.get("answer")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if question.kind == "checkbox" and isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list):
        return [str(item) for item in value]
    if isinstance(value, str | int | float):
        return str(value)
    return "" if value is None else None


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of all runs, which clients can't change.

    Attributes:
        model: `client:model` for everything that does not name its own.
        limits: limits of each run.
        allow, yes, roots: as for `run`: tools without permission questions, or all of them; directories for the `fs_*`
            tools.
        max_runs: maximum number of concurrent runs, including parked ones.
        question_timeout: seconds that a client's user has for a question.
    """

    model: str | None = None
    limits: Limits = Limits()
    allow: tuple[str, ...] = ()
    yes: bool = False
    roots: tuple[str, ...] = ()
    max_runs: int = 100
    question_timeout: float = 600.0


class Service:
    """Shared state and runs.

    Args:
        me: actor of the server; the calls are its children.
    """

    def __init__(self, me: Actor, root: Root, offers: Mapping[str, OfferedAgent], options: ServiceOptions) -> None:
        self.me = me
        self.offers = offers
        self.options = options
        self._root = root
        self._calls: set[McpToolCall] = set()
        self._by_run: dict[str, McpToolCall] = {}
        self._parked: dict[str, tuple[McpToolCall, Ref[Never, None]]] = {}

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Handle the questions of the server's runs for the duration of the block."""
        top = self._root.kernel.actor
        before, top.policy = top.policy, self._policy
        try:
            yield
        finally:
            top.policy = before

    def begin(self, offer: OfferedAgent, arguments: Mapping[str, Json], *, asks: bool) -> McpToolCall:
        """Start a run.

        Raises:
            UsageError: the arguments are invalid, or there are too many runs.
        """
        try:
            errors = schema_errors(arguments, offer.schema)
        except RecursionError:
            errors = ["the arguments are nested too deeply"]
        if errors:
            raise UsageError(f"The arguments of '{offer.name}' are not valid: {'; '.join(errors)}")
        if max(len(self._calls), len(self._parked)) >= self.options.max_runs:
            raise UsageError(f"{self.options.max_runs} runs are active, which is the limit; try again later")
        call = McpToolCall(offer, self._root.kernel.questions, asks=asks, began=self._by_run.__setitem__)
        self._calls.add(call)
        ref = self.me.spawn(call.play, partial(self._run, offer, arguments), name=offer.name, link=False)
        ref.on_end(lambda _: self._over(call))
        return call

    # --- between two requests -------------------------------------------------------------------------------

    def park(self, call: McpToolCall) -> str:
        """Park a call for the request that answers its questions; return the token that the request must present."""
        state = secrets.token_urlsafe(24)
        self._parked[state] = call, self.me.spawn(self._wait_for_answer, state, name="parked", link=False)
        return state

    def resume(self, state: str, name: str) -> McpToolCall | None:
        """Return a parked call, once; None if there is none, or it is another agent's."""
        if state not in self._parked or self._parked[state][0].offer.name != name:
            return None
        call, waiting = self._parked.pop(state)
        waiting.cancel()
        return call

    async def _wait_for_answer(self, _: Actor, state: str) -> None:
        await trio.sleep(self.options.question_timeout)
        call, _ref = self._parked.pop(state)
        call.cancel()

    # --- runs -----------------------------------------------------------------------------------------------

    async def _run(self, offer: OfferedAgent, arguments: Mapping[str, Json], on_event: Listener) -> Outcome:
        options = self.options
        request = RunRequest(
            target=offer.agent.file,
            prompt=arguments.get("prompt", ""),
            variables=arguments.get("variables") or {},
            state=arguments.get("state") or {},
            model=options.model,
            limits=options.limits,
            allow=options.allow,
            yes=options.yes,
            roots=options.roots,
        )
        return await perform(request, RunCallbacks(loaded=offer.agent, on_event=on_event), self._root)

    def _over(self, call: McpToolCall) -> None:
        self._calls.discard(call)
        for name in [name for name, known in self._by_run.items() if known is call]:
            del self._by_run[name]

    def _policy(self, question: Question) -> Answer | Verdict:
        call = self._by_run.get(question.run)
        if call is None or not call.asks or not can_be_asked(question):
            return PASS
        call.ask(question)
        return HOLD
