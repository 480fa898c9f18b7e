"""agent nodes: a model receives the queued messages, can use tools and memories, and its answer is the output.

    memories of stage gen            before the last message to the model
    the conversation                 until the model calls no more tools
    reflection                       if the node has `thinking`: its answer replaces the first
    memories are written             at whatever stage they are read

With `provider: callboard`, another agent runs as a child of this node: it has its own model, tools and turns, and
receives inputs, role and memories as one prompt. Its name can be a YAML file: of a graph or of another workflow.

Tools (`tooling`):

    function      functions in Python files
    mcp_local     tools of an MCP server that is started as a process
    mcp_remote    tools of an MCP server that is reached over HTTP

The files of functions are described without being executed, and each call runs in its own process. There the functions
find the environment of DevAll's engine: modules (`workers.devall`), and a `_context` with the run's workspace and a way
to ask the user. The return value becomes text or JSON. A message or attachment of DevAll's classes also shows its
images and files: text files as text, PDFs and images unchanged, other files by name and size, because models differ
too much in their support.

A server belongs to the run: all agents that describe the same server share it, and it ends with the run. Its calls
need permission, as the calls of any agent do.

Skills: without `allow`, an agent can read all skills next to the workflow and next to its directory. If the user trusts
the run's directory, it can also read the skills there. With `allow`, it can read the named skills, wherever they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never
from urllib.parse import urlsplit

import msgspec
import trio

from .....protocol.chat import AssistantTurn, ChatRequest, FilePart, ImagePart, Part, TextPart, Turn, UserTurn
from .....protocol.decoding import decode_json
from .....protocol.errors import CallboardError, ConfigError, GraphMistake, NodeFailed, TimedOut, ToolFailed
from .....protocol.events import Warned
from .....protocol.mcp.config import NO_HEADER_VALUE, Server, is_header_value, is_web_address
from .....protocol.problems import did_you_mean, errors_in
from .....protocol.skill import FILE
from .....protocol.workflow.model import (
    AgentConfig,
    FunctionTools,
    McpLocalTools,
    McpRemoteTools,
    Stage,
    ToolEntry,
    Tooling,
)
from .....protocol.workflow.model import Skills as Allowed
from ....io import temporary
from ....work.context import AgentCall
from ....work.models.codec import file_as_text
from ....work.opening_instructions import ListedSkill, OpeningInstructions
from ....work.skills import NEAR, FoundSkill, FoundSkills, block, skill_tool
from ....work.tools.calls import Around, CallPlayer
from ....work.tools.files.runner_protocol import Host
from ....work.tools.registry import ToolOptions, ToolRegistry, read_tool_file
from ....work.tools.tool import TIMEOUT, Arguments, Json, Tool, ToolSpec, VisibleResult
from ....work.transcript import Record
from ....work.trust import workspace_of
from ...conversation.run import Conversation, ConversationSetup, OutOfTurns
from ..agent_request import CALLBOARD, ModelParams, model_of, policy_of, read_params
from ..job import Job
from ..machine.perform import Said, role_of
from ..memory.memories import Recalled
from ..messages import Message, conversation, headed_text, reflection, remembering
from ..plan import HOST, function_files, functions_directory, module_name, roots_of

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ....work.context import RunContext
    from ....work.mcp.tools.view import ServersView
    from ....work.tools.declare.declaration import Declaration, Schema
    from ....work.tools.files.environment import Home
    from ..plan import WorkflowRun


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
            from .agent import skills_of

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
            text = f"{error}; its last text is used as the answer"
            self._me.emit(Warned(code="tool_loop_limit", message=text, node=self._job.node.id))
        said = talk.messages[len(turns) :]
        texts = [turn.text for turn in said if isinstance(turn, AssistantTurn)]
        return texts[-1] if texts else "", said

    @contextmanager
    def _talk(self, model: str) -> Iterator[ServersView | None]:
        if not wants_servers(self.config.tooling):
            yield None
            return
        from ....work.mcp.tools.view import ServersView

        with self._job.resources.servers(self._me).inner(self._me.path) as scope:
            yield ServersView(scope=scope, context=self._shared.context, model=model)

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


# --- tools and skills -------------------------------------------------------------------------------------


def wants_servers(toolings: Iterable[Tooling]) -> bool:
    """Return True if an entry describes an MCP server."""
    return any(not isinstance(tooling.config, FunctionTools) for tooling in toolings)


async def tools_of_node(me: Actor, job: Job, toolings: Iterable[Tooling], talk: ServersView | None) -> list[Tool]:
    """Return the tools of a node.

    Args:
        talk: the conversation's view of MCP servers; None if `wants_servers` is False.

    Raises:
        GraphMistake: a function does not exist.
        ConfigError: two tools have the same name, or a server's entry is invalid.
        McpError: a server does not respond.
    """
    found: dict[str, Tool] = {}
    for tooling in toolings:
        prefix = f"{tooling.prefix}_" if tooling.prefix else ""
        if isinstance(tooling.config, FunctionTools):
            tools = list(function_tools(job.shared, job.node.id, tooling.config))
        else:
            assert talk is not None
            tools = await _served(me, job, tooling.config, talk, prefix)
        for tool in tools:
            named = tool
            # `_served` has already added the prefix to names of MCP tools.
            if prefix and tool.origin != "mcp":
                named = msgspec.structs.replace(tool, spec=msgspec.structs.replace(tool.spec, name=prefix + tool.name))
            if named.name in found:
                raise ConfigError(
                    f"two tools are called '{named.name}': give one of their entries of `tooling` another `prefix`"
                )
            found[named.name] = named
    return list(found.values())


async def _served(
    me: Actor, job: Job, config: McpLocalTools | McpRemoteTools, talk: ServersView, prefix: str
) -> list[Tool]:
    from ....work.mcp.tools.direct import direct_tool
    from ....work.mcp.tools.names import legal
    from ....work.mcp.tools.view import ServerView

    server = job.resources.servers(me).bring(_server(config, job.shared.plan.file.parent))
    view = ServerView(talk=talk, server=server)
    return [direct_tool(view, tool, legal(prefix + tool.name)) for tool in await view.tools(me)]


def _server(config: McpLocalTools | McpRemoteTools, directory: Path) -> Server:
    match config:
        case McpLocalTools():
            return Server(
                name=_word(Path(config.command).name),
                type="stdio",
                command=config.command,
                args=config.args,
                env=config.env,
                cwd=None if config.cwd is None else str(directory / config.cwd),
                inherit_env=config.inherit_env,
                start_timeout_seconds=max(config.startup_timeout, _LEAST_TO_START),
                share="per-run",
            )
        case McpRemoteTools():
            if not is_web_address(config.server):
                raise ConfigError(f"`mcp_remote`: '{config.server}' is no http:// or https:// address")
            for name, value in config.headers.items():
                if not is_header_value(value):
                    raise ConfigError(f"`mcp_remote`: the value of header {name} {NO_HEADER_VALUE}")
            server = Server(
                name=_word(urlsplit(config.server).netloc),
                type="http",
                url=config.server,
                headers=config.headers,
                share="per-run",
            )
            return server if config.timeout is None else msgspec.structs.replace(server, timeout_seconds=config.timeout)
    assert_never(config)


_LEAST_TO_START = 30.0
"""Least start timeout of a server in seconds: DevAll's own engine waits without a limit."""


def _word(name: str) -> str:
    return re.sub(r"[^\w.-]", "-", name) or "server"


ALL = ":All"
"""Suffix of a file name that selects all functions of the file."""

CONTEXT = "_context"
"""Parameter that receives the run's context."""

LARGEST = 20 * 1024 * 1024
"""Largest file in bytes; providers accept less."""

MOST = 20
"""Most files of one result."""


def function_tools(run: WorkflowRun, node: str, listed: FunctionTools) -> Iterator[Tool]:
    """Yield the functions that an entry of `tooling` lists, as tools.

    Args:
        node: the id of the agent node.

    Raises:
        GraphMistake: a function does not exist.
    """
    context, beside = run.context, run.plan.file.parent
    directory = functions_directory(beside, "function_calling", context.environ)
    # Once per entry of `tooling`, not per function: listing reads the directory tree.
    files = function_files(directory)
    registry = context.registry or ToolRegistry(context.config_dir, context.settings, context.environ)
    options = context.tool_options or ToolOptions()
    home = registry.home(directory=beside, agent=None, values={}, options=options)
    for entry in listed.tools:
        for declaration in _declared(entry, files, directory):
            call = partial(_call, run, node, declaration, home, listed.timeout or TIMEOUT)
            yield Tool(
                spec=_spec(declaration, entry), run=call, origin="file", timeout=None, repeats=declaration.repeats
            )


async def _call(
    run: WorkflowRun,
    node: str,
    declaration: Declaration,
    home: Home,
    timeout: float,
    me: Actor,
    arguments: Arguments,
) -> Json:
    from ....work.tools.files.call import play
    from ....work.tools.files.call_process import DONE

    workspace = await run.workspace.path()
    # Images and files do not fit into the JSON result, so the process writes them to this directory.
    with temporary.directory("parts-") as directory:
        parts = directory / "parts.json"
        given = {
            "roots": [str(root) for root in roots_of(declaration.file)],
            "directory": str(declaration.file.absolute().parent),
            "workspace": str(workspace),
            "vars": run.plan.workflow.vars,
            "session_id": me.stream.run,
            "node_id": node,
            "parts": str(parts),
        }
        host, writes = Host(HOST, given), (workspace, Path(directory))
        written = await play(me, declaration, arguments, home, timeout=timeout, host=host, writes=writes)
        more = await trio.to_thread.run_sync(_result_with_file, parts)
    return more or written.text or DONE


def _declared(entry: ToolEntry, files: list[Path], directory: Path | None) -> Iterator[Declaration]:
    where = directory or "functions/function_calling"
    if entry.name.endswith(ALL):
        module = entry.name.removesuffix(ALL)
        named = {module_name(file, directory): file for file in files}
        file = named.get(module)
        if file is None:
            hint = did_you_mean(module, named) or f"{where} has no {module}.py"
            raise GraphMistake(f"`tooling` names '{entry.name}': {hint}")
        yield from read_tool_file(file, agent=True, wordless=True).declarations
        return
    known: dict[str, Declaration] = {}
    broken: list[str] = []
    for file in files:
        read = read_tool_file(file, agent=True, wordless=True)
        for declaration in read.declarations:
            known.setdefault(declaration.name, declaration)
        errors = [str(problem) for problem in errors_in(read.problems)]
        # Report problems of files that seem to define the function, not of all files.
        if errors and f"def {entry.name}(" in file.read_text(errors="replace"):
            broken += errors
    found = known.get(entry.name)
    if found is None:
        why = "; ".join(broken) or did_you_mean(entry.name, known) or f"no file of {where} has it"
        raise GraphMistake(f"`tooling` names the function '{entry.name}': {why}")
    yield found


def _spec(declaration: Declaration, entry: ToolEntry) -> ToolSpec:
    """Return the tool's description for the model; an entry for a whole file cannot describe single functions."""
    if entry.name.endswith(ALL):
        entry = ToolEntry(name=entry.name)
    description = declaration.description if entry.auto_fill else ""
    parameters = _offered(declaration.parameters) if entry.auto_fill else {"type": "object", "properties": {}}
    return ToolSpec(
        name=declaration.name,
        description=entry.description or description,
        parameters=entry.parameters or parameters,
    )


def _offered(parameters: Schema) -> Schema:
    """Return the parameters for the model: DevAll's engine supplies `_context` and `_` names with a default."""
    needed = parameters.get("required", ())
    # The engine passes these itself; a model that sees them would fill them with inventions.
    hidden = {
        name for name in parameters["properties"] if name == CONTEXT or (name.startswith("_") and name not in needed)
    }
    if not hidden:
        return parameters
    properties = {name: schema for name, schema in parameters["properties"].items() if name not in hidden}
    left = {**parameters, "properties": properties}
    if needed:
        left["required"] = [name for name in needed if name not in hidden]
    return left


class _Written(msgspec.Struct, frozen=True):
    """Part of a result as the function's process writes it: `text`, or a file."""

    text: str = ""
    path: str = ""
    name: str = ""
    media_type: str = ""


def _result_with_file(file: Path) -> VisibleResult | None:
    try:
        written = decode_json(file.read_bytes(), tuple[_Written, ...])
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ToolFailed(f"what the function shows can't be read: {error}") from error
    if sum(bool(each.path) for each in written) > MOST:
        raise ToolFailed(f"the function shows more than {MOST} files")
    return VisibleResult(tuple(_part(each) for each in written)) if written else None


def _part(written: _Written) -> Part:
    if not written.path:
        return TextPart(written.text)
    file = Path(written.path)
    try:
        size = file.stat().st_size
        if not file.is_file() or size > LARGEST:
            return TextPart(f"[file: {written.name}, {size} bytes; it is not shown]")
        data = file.read_bytes()
    except OSError as error:
        raise ToolFailed(f"the file {file} can't be shown: {error.strerror}") from error
    kind = written.media_type
    # SVG is text: models can read it, but providers do not accept it as an image.
    if kind.startswith("image/") and kind != "image/svg+xml":
        return ImagePart(media_type=kind, data=data)
    if kind == "application/pdf":
        return FilePart(name=written.name, data=data, media_type=kind)
    try:
        is_text = "\0" not in data.decode()
    except UnicodeDecodeError:
        is_text = False
    if is_text:
        return TextPart(file_as_text(FilePart(name=written.name, data=data)))
    return TextPart(f"[file: {written.name}, {kind}, {size} bytes]")


_OF_PLACES = (NEAR, "workspace")


def skills_of(allowed: Allowed, directory: Path, context: RunContext) -> tuple[OpeningInstructions, Tool | None]:
    """Return an agent's instructions about its skills, and the tool that reads them (None without skills). Reads
    files.

    Raises:
        GraphMistake: an allowed skill does not exist, or a skill next to the workflow is invalid.
    """
    here = context.cwd
    trusted = None if here is None else workspace_of(here, context.environ)
    skills = FoundSkills(trusted, context.config_dir, context.environ, near=(directory, directory.parent))
    # Only skills next to the workflow must be valid; the user's own skills can have errors that do not concern it.
    own = tuple(str(place / ".agents" / "skills") for place in (directory, directory.parent))
    if broken := [problem for problem in skills.broken if problem.file.startswith(own)]:
        raise GraphMistake("\n".join(map(str, broken)))
    there = skills.by_name
    for name in allowed.allow:
        if name not in there:
            hint = did_you_mean(name, there) or f"there is no {directory / '.agents' / 'skills' / name / FILE}"
            raise GraphMistake(f"`skills` allows '{name}': {hint}")
    found: list[FoundSkill] = [
        each for name, each in there.items() if (name in allowed.allow if allowed.allow else each.origin in _OF_PLACES)
    ]
    if not found:
        return OpeningInstructions(), None
    told = tuple(ListedSkill(name=each.skill.name, allows=each.skill.allows) for each in found)
    return OpeningInstructions(blocks=(block(found),), skills=told), skill_tool(skills, told)
