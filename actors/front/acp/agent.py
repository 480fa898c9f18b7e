"""ACP agent on one connection: its methods, and the execution of prompts as runs of the hub.

Sessions are in the store; `AcpSession` is an open one with the client's settings, directories and servers. `Prompting`
executes one prompt, and sends the events and questions of its run to the client:

a permission, yes/no, a choice        session/request_permission with options; `always` is allow_always
a text, several choices               elicitation/create, if the client can show forms
anything else                         the question's default, or none
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Coroutine
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import msgspec
import trio

from ....protocol.chat import ImagePart
from ....protocol.control import acp
from ....protocol.control.acp import McpServer, Place, Prompt, StopReason, text_block
from ....protocol.control.caller import LOCAL
from ....protocol.control.errors import RUN_FAILED, Refused
from ....protocol.control.method_structs import StartRun
from ....protocol.control.resources import QuestionAsked
from ....protocol.errors import CallboardError, ConfigError, Conflict, NobodyToAsk, NotFound, UsageError
from ....protocol.events import decode
from ....protocol.jsonrpc import INVALID_PARAMS, Json
from ....protocol.mcp.config import NO_HEADER_VALUE, Server, is_header_value, is_web_address
from ....protocol.outcome import Outcome
from ....protocol.requests import RunRequest
from ....protocol.version import VERSION
from ...io.outbox import over_pipes, private_stdio
from ...runs.loading import durable_by
from ...runs.root import Root, played
from ..control.hub import Method
from ..control.logs.files import LoggedEvent
from ..control.methods import open_hub
from ..control.peer import ControlPeer
from ..control.requests import check_model
from ..control.runs.live_run import HubOptions
from .updates import Updates, chunk, replay

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ....supervisors import Actor, Ref
    from ...runs.root import Root
    from ...runs.sessions.session_locks import Sessions
    from ...runs.sessions.store import Stored


PAGE = 100


class AcpAgent:
    """ACP agent of a connection.

    Args:
        agent: agent of new sessions if the client names none; None for a model without an agent.

    Attributes:
        methods: handlers by method name.
    """

    def __init__(self, peer: ControlPeer, agent: str | None = None) -> None:
        self._agent = agent
        self._peer = peer
        self._forms = False
        self._notices = False
        self._open: dict[str, AcpSession] = {}
        self.methods = {
            "initialize": self._method(acp.Initialize, self._initialize),
            "authenticate": self._method(acp.Authenticate, self._authenticate),
            "session/new": self._method(acp.NewSession, self._new),
            "session/load": self._method(acp.OldSession, self._load),
            "session/resume": self._method(acp.OldSession, self._resume),
            "session/list": self._method(acp.ListSessions, self._list),
            "session/prompt": self._method(acp.Prompt, self._prompt),
            "session/cancel": self._method(acp.OfSession, self._cancel, notification=True),
            "session/close": self._method(acp.OfSession, self._close),
            "session/delete": self._method(acp.OfSession, self._delete),
            "session/set_mode": self._method(acp.SetMode, self._set_mode),
            "session/set_config_option": self._method(acp.SetConfigOption, self._set_option),
        }

    @staticmethod
    def _method(params: Any, answer: Callable[[Any], Any], *, notification: bool = False) -> Method:
        return Method(params, Any, lambda _, given: answer(given), notification=notification)

    # --- initialisation -------------------------------------------------------------------------------------

    async def _initialize(self, params: acp.Initialize) -> Json:
        able = params.client_capabilities
        self._forms = able.elicitation is not None and able.elicitation.form is not None
        self._notices = able.session is not None and able.session.notices is not None
        return {
            "protocolVersion": acp.VERSION,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": {
                    "list": {},
                    "resume": {},
                    "close": {},
                    "delete": {},
                    "additionalDirectories": {},
                },
            },
            "agentInfo": {"name": "callboard", "title": "Callboard", "version": VERSION},
            "authMethods": [],
        }

    async def _authenticate(self, params: acp.Authenticate) -> Json:
        raise Refused(
            f"the authentication method {params.method_id!r} does not exist; no authentication is needed",
            number=INVALID_PARAMS,
        )

    # --- sessions -------------------------------------------------------------------------------------------

    async def _new(self, params: acp.NewSession) -> Json:
        agent = params.agent or self._agent
        scope, refused = (None, "") if agent is None else await self._checked(agent)
        workspace = await workspace_of(self._peer.caller, params, refused=refused)
        made = await self._sessions.create(self._peer.caller, agent=scope, cwd=params.cwd)
        session = self._open[made.id] = AcpSession(agent, made.model, workspace)
        return {"sessionId": made.id, **session.state(self._root)}

    async def _load(self, params: acp.OldSession) -> Json:
        stored, session = await self._opened(params)
        for update in replay(stored.session):
            await self._peer.notify("session/update", {"sessionId": stored.id, "update": update})
        return session.state(self._root)

    async def _resume(self, params: acp.OldSession) -> Json:
        _, session = await self._opened(params)
        return session.state(self._root)

    async def _opened(self, params: acp.OldSession) -> tuple[Stored, AcpSession]:
        stored = await self._sessions.get(self._peer.caller, _checked_id(params.session_id))
        refused = ""
        if params.mcp_servers and stored.agent is not None:
            _, refused = await self._checked(stored.agent)
        workspace = await workspace_of(self._peer.caller, params, refused=refused)
        known = self._open.get(stored.id)
        if known is None or known.prompting is None:
            title = stored.session.title
            known = self._open[stored.id] = AcpSession(stored.agent, stored.session.model, workspace, title)
        return stored, known

    async def _list(self, params: acp.ListSessions) -> Json:
        found = await self._sessions.list(self._peer.caller)
        if params.cwd is not None:
            found = [meta for meta in found if meta.cwd == params.cwd]
        ids = [meta.id for meta in found]
        begin = ids.index(params.cursor) + 1 if params.cursor in ids else 0
        page = found[begin : begin + PAGE]
        told: dict[str, Json] = {
            "sessions": [
                {
                    "sessionId": meta.id,
                    "cwd": meta.cwd or str(Path.cwd()),
                    "title": meta.title or meta.alias,
                    "updatedAt": meta.last_modified,
                    "_meta": {"callboard": {"agent": meta.agent, "alias": meta.alias}},
                }
                for meta in page
            ]
        }
        return {**told, "nextCursor": page[-1].id} if begin + PAGE < len(found) else told

    async def _close(self, params: acp.OfSession) -> Json:
        session = self._open.pop(params.session_id, None)
        if session is None:
            raise NotFound(f"there is no open session '{params.session_id[:60]}'")
        session.cancel()
        return {}

    async def _delete(self, params: acp.OfSession) -> Json:
        await self._sessions.delete(self._peer.caller, _checked_id(params.session_id))
        self._open.pop(params.session_id, None)
        return {}

    # --- prompts --------------------------------------------------------------------------------------------

    def _prompt(self, params: acp.Prompt) -> Coroutine[Any, Any, Json]:
        session = self._open.get(params.session_id)
        if session is not None:  # it can be cancelled from now on
            session.arrived.append(params)
        return self._play(params)

    def _cancel(self, params: acp.OfSession) -> None:
        session = self._open.get(params.session_id)
        if session is not None:
            session.cancel()

    async def _play(self, params: acp.Prompt) -> Json:
        session = self._of(params.session_id)
        if session.was_cancelled(params):
            return {"stopReason": "cancelled"}
        if session.prompting is not None:
            raise Conflict("a prompt of this session is still running; wait until it has finished, or cancel it")
        text, images = acp.read_prompt(params.prompt)
        if not text.strip() and not images:
            raise UsageError("the prompt has no content")
        shows = Shows(forms=self._forms, notices=self._notices)
        prompting = session.prompting = Prompting(self._peer, params.session_id, session, shows)
        wanted = StartRun(
            target=session.agent or "",
            prompt=text,
            model=session.model,
            session=params.session_id,
            yes=session.mode == "yes",
        )
        try:
            reason = await prompting.play(wanted, images, acp.typed(params.prompt))
        finally:
            session.prompting = None
        await self._send_title(params.session_id, session)
        return {"stopReason": reason}

    async def _send_title(self, id: str, session: AcpSession) -> None:
        try:
            found = await self._sessions.get(self._peer.caller, id)
        except CallboardError:
            return  # it was removed meanwhile
        if found.session.title is not None and found.session.title != session.title:
            session.title = found.session.title
            update = {"sessionUpdate": "session_info_update", "title": session.title}
            await self._peer.notify("session/update", {"sessionId": id, "update": update})

    async def _set_mode(self, params: acp.SetMode) -> Json:
        session = self._of(params.session_id)
        await self._change_mode(params.session_id, session, params.mode_id)
        update = {"sessionUpdate": "config_option_update", "configOptions": session.options(self._root)}
        await self._peer.notify("session/update", {"sessionId": params.session_id, "update": update})
        return {}

    async def _change_mode(self, id: str, session: AcpSession, mode: str) -> None:
        if mode not in MODES:
            raise UsageError(f"unknown mode {mode!r}; the modes are {', '.join(MODES)}")
        if mode == "yes":
            self._peer.caller.need("answer:questions")
        session.mode = mode
        update = {"sessionUpdate": "current_mode_update", "currentModeId": mode}
        await self._peer.notify("session/update", {"sessionId": id, "update": update})

    async def _set_option(self, params: acp.SetConfigOption) -> Json:
        session = self._of(params.session_id)
        if params.config_id not in (MODEL, MODE):
            raise UsageError(f"unknown option {params.config_id!r}; the options are `{MODEL}` and `{MODE}`")
        if not isinstance(params.value, str):
            expected = "the id of a model, client:model" if params.config_id == MODEL else " or ".join(MODES)
            raise UsageError(f"the value of `{params.config_id}` must be {expected}")
        if params.config_id == MODE:
            await self._change_mode(params.session_id, session, params.value)
        else:
            check_model(self._peer.caller, params.value, self._root)
            session.model = self._root.gateway.check(params.value) if params.value else None
        return {"configOptions": session.options(self._root)}

    # --- internal -------------------------------------------------------------------------------------------

    @property
    def _root(self) -> Root:
        return self._peer.hub.root

    @property
    def _sessions(self) -> Sessions:
        return self._root.sessions

    def _of(self, id: str) -> AcpSession:
        session = self._open.get(id)
        if session is None:
            raise NotFound(f"there is no open session '{id[:60]}'; open it with session/load or session/resume")
        return session

    async def _checked(self, agent: str) -> tuple[str | None, str]:
        """Return the agent name for its sessions, and the reason why it accepts no servers ("" if it does).

        Loads the agent, so that an error appears now and not with the first prompt.
        """
        from ...runs.loading import NO_HOOKS
        from ...runs.session_run import agent_of
        from ...runs.target import LoopAgent

        request = await self._peer.hub.request(self._peer.caller, StartRun(target=agent))
        target = await self._root.loader.load(request, NO_HOOKS)
        only = (
            f"'{agent}' is not an LLM agent and uses only the MCP servers of its own file; send an empty `mcpServers`"
        )
        return agent_of(target), "" if isinstance(target, LoopAgent) else only


def _checked_id(id: str) -> str:
    from ...runs.sessions.names import as_id

    known = as_id(id)
    if known is None:
        raise NotFound(f"there is no session '{id[:60]}'")
    return known


async def serve_acp(root: Root, agent: str | None = None, *, pipes: tuple[int, int] | None = None) -> None:
    """Serve ACP until the client closes stdin, or the root stops. All runs belong to this client, and end with it.

    Args:
        agent: agent of new sessions if the client names none.
        pipes: two descriptors in place of stdin and stdout, which are closed at the end.
    """

    async def body(me: Actor) -> None:
        options = HubOptions(keep_runs=root.settings.api.keep_runs, durable=durable_by(None, root.settings), by="chat")
        async with open_hub(root, options=options) as hub, over_pipes(me, source, sink) as (messages, outbox):
            peer = ControlPeer(me, hub, LOCAL, outbox.put, methods=lambda peer: AcpAgent(peer, agent).methods)
            try:
                async for line in messages:
                    await peer.receive(line)
            finally:
                peer.close()

    with private_stdio() if pipes is None else nullcontext(pipes) as (source, sink):
        await played(root, body, name="control")


log = logging.getLogger("callboard.control")


Question = dict[str, Json]

_REASONS: dict[str, StopReason] = {
    "max_turns": "max_turn_requests",
    "budget": "max_tokens",
    "daily_budget": "max_tokens",
    "reply_filtered": "refusal",
}
_KINDS = {"yes": "allow_once", "run": "allow_always", "always": "allow_always", "no": "reject_once"}
_NAMES = {"yes": "Allow", "run": "Allow for this run", "always": "Always allow", "no": "Refuse"}


class Shows(msgspec.Struct, frozen=True, kw_only=True):
    """Display features that the client has declared: `forms`, `notices`."""

    forms: bool = False
    notices: bool = False


class Prompting:
    """Prompt that is being executed.

    Args:
        id: session id.
        shows: display features of the client.

    Attributes:
        run: id of its run, once it has begun.
    """

    def __init__(self, peer: ControlPeer, id: str, session: AcpSession, shows: Shows) -> None:
        self.run: str | None = None
        self._peer = peer
        self._hub = peer.hub
        self._id = id
        self._session = session
        self._shows = shows
        self._cancelled = False
        self._waiting = trio.CancelScope()
        self._asked: dict[str, Ref[Never, None]] = {}

    def cancel(self) -> None:
        """Cancel the prompt. It is still answered, with `cancelled`."""
        self._cancelled = True
        if self.run is None:
            self._waiting.cancel()
        else:
            self._hub.cancel(self._peer.caller, self.run)

    async def play(self, wanted: StartRun, images: tuple[ImagePart, ...] = (), typed: str | None = None) -> StopReason:
        """Run the prompt and return its stop reason.

        Args:
            images: images of the prompt.
            typed: see `RunRequest`.

        Raises:
            Refused: the run failed.
            CallboardError: it could not start.
        """
        with self._waiting:
            request = await self._hub.request(self._peer.caller, wanted)
            request = msgspec.structs.replace(self._session.workspace.applied_to(request), parts=images, typed=typed)
            info = await self._hub.sessions.start(self._peer.caller, self._id, request)
            self.run = info.run
        if self.run is None:
            return "cancelled"
        if self._cancelled:  # cancelled in the moment of its start
            self.cancel()
        try:
            outcome = await self._follow(self.run)
        except BaseException:  # cancelled: the client has disconnected
            self._hub.cancel(self._peer.caller, self.run)
            raise
        return await self._reason(outcome)

    async def _follow(self, run: str) -> Outcome:
        session = self._session
        updates = Updates(self._window, cwd=session.workspace.cwd, notices=self._shows.notices, spent=session.spent)
        asking = self._peer.me.spawn(self._questions, run, name="questions", link=False)
        try:
            await self._send_update(run, updates)
        finally:
            session.spent = updates.cost
            asking.cancel()  # including its current question
        outcome = await self._hub.wait(self._peer.caller, run)
        if outcome.output and not updates.said:
            await self._update(chunk("agent_message_chunk", outcome.output))
        await self._hub.sessions.wait_stored(run)
        return outcome

    async def _send_update(self, run: str, updates: Updates) -> None:
        async def take(event: LoggedEvent) -> None:
            if (told := decode(event.data)) is not None:
                for update in updates.of(told):
                    await self._update(update)

        await self._hub.follow(self._peer.caller, run, take)

    async def _questions(self, me: Actor, run: str) -> None:
        """Start an actor for each question of the run. Body of an actor."""
        with self._hub.watch_questions(self._peer.caller) as feed:
            async for each in feed:
                if isinstance(each, QuestionAsked):
                    if each.question.get("run") == run:
                        id = str(each.question["id"])
                        self._asked[id] = me.spawn(self._ask, id, each.question, name="question", link=False)
                elif each.question in self._asked:
                    self._asked.pop(each.question).cancel()

    async def _ask(self, _: Actor, id: str, question: dict[str, Json]) -> None:
        """Ask the client. Body of a question's actor, which another front end's answer cancels."""
        answer: str | list[str] | None = None
        try:
            answer = await ask(self._peer, self._id, question, forms=self._shows.forms)
        except NobodyToAsk as nobody:
            await self._update(chunk("agent_message_chunk", f"\n\n{nobody}\n"))
        self._asked.pop(id, None)
        if answer is None:
            self.cancel()
        else:
            with suppress(CallboardError):  # the answer is used, though it could not be stored
                await self._hub.answer(self._peer.caller, id, answer)

    def _window(self, model: str) -> int | None:
        try:
            return self._hub.root.gateway.known_window(model)
        except ConfigError:
            return None

    async def _update(self, update: dict[str, Json]) -> None:
        await self._peer.notify("session/update", {"sessionId": self._id, "update": update})

    async def _reason(self, outcome: Outcome) -> StopReason:
        if outcome.status == "cancelled" or self._cancelled:
            return "cancelled"
        if outcome.error is None:
            return "end_turn"
        reason = _REASONS.get(outcome.error.code)
        if reason is None:
            raise Refused(outcome.error.message, number=RUN_FAILED, data={"code": outcome.error.code})
        if reason == "refusal":  # clients show only the word, and the provider's reason says what to do
            await self._update(chunk("agent_message_chunk", outcome.error.message))
        return reason


async def ask(peer: ControlPeer, session: str, question: Question, *, forms: bool) -> str | list[str] | None:
    """Return the answer of the client; None if the client cancels the question.

    Args:
        question: question in wire form.
        forms: True if the client can show forms.

    Raises:
        NobodyToAsk: the client can't show it, and it has no default.
    """
    kind = question.get("kind", "text")
    try:
        if question.get("permission") or kind == "confirm" or (kind == "choice" and not forms):
            return await _permission(peer, session, question)
        if forms:
            return await _form(peer, session, question)
    except Refused as refused:  # the client can't show it after all, or has disconnected
        log.debug("the client did not answer a question: %s", refused)
    if question.get("default") is None:
        raise NobodyToAsk(f"this client can't display a question: {question['text']}")
    return str(question["default"])


async def _permission(peer: ControlPeer, session: str, question: Question) -> str | None:
    options = question.get("options") or ("yes", "no")
    tool = question.get("permission")
    text = str(question["text"])
    answer = await peer.request(
        "session/request_permission",
        {
            "sessionId": session,
            "toolCall": {
                "toolCallId": question["actor"] if tool else question["id"],
                "title": tool or text.partition("\n")[0][:200],
                "status": "pending",
                "content": [{"type": "content", "content": text_block(text)}],
            },
            "options": [
                {"optionId": each, "name": _named(each, tool), "kind": _KINDS.get(each, "allow_once")}
                for each in options
            ],
        },
    )
    outcome = answer.get("outcome") if isinstance(answer, dict) else None
    chosen = outcome.get("optionId") if isinstance(outcome, dict) and outcome.get("outcome") == "selected" else None
    return str(chosen) if chosen in options else None


def _named(option: str, tool: Json) -> str:
    return _NAMES.get(option, option) if tool else option


async def _form(peer: ControlPeer, session: str, question: Question) -> str | list[str] | None:
    answer = await peer.request(
        "elicitation/create",
        {
            "sessionId": session,
            "mode": "form",
            "message": _message(question),
            "requestedSchema": {"type": "object", "properties": {"answer": _schema(question)}, "required": ["answer"]},
        },
    )
    if not isinstance(answer, dict):
        return None
    content = answer.get("content")
    if answer.get("action") == "accept" and isinstance(content, dict):
        value = content.get("answer")
        return [str(each) for each in value] if isinstance(value, list) else None if value is None else str(value)
    default: str | None = question.get("default") if answer.get("action") == "decline" else None
    return default


def _message(question: Question) -> str:
    parts = [str(question["text"]), question.get("rule"), question.get("problem")]
    return "\n".join(part for part in parts if part)


def _schema(question: Question) -> Json:
    options = list(question.get("options") or ())
    if question.get("kind") == "checkbox":
        return {"type": "array", "title": "Answer", "items": {"type": "string", "enum": options}}
    schema: dict[str, Json] = {"type": "string", "title": "Answer"}
    if options and question.get("free") is False:
        schema["enum"] = options
    elif options:
        schema["description"] = "One of: " + ", ".join(options)
    if question.get("default") is not None:
        schema["default"] = question["default"]
    return schema


MODES = {"ask": "Ask first", "yes": "Allow all"}
"""Permission modes of tools. `ask` follows the user's settings."""

MODEL = "model"
MODE = "mode"

MOST_SERVERS = 50
"""Maximum number of MCP servers of one session."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class AcpSession:
    """Session with its agent, directory and settings.

    Attributes:
        agent, model: agent and model; None for no agent, and for the agent's own model.
        workspace: directories and servers of the client.
        title: title known to the client.
        mode: one of `MODES`.
        prompting: current prompt.
        arrived: prompts that have not begun yet.
        spent: cost of its prompts in USD; None once a price was unknown.
    """

    def __init__(
        self, agent: str | None, model: str | None, workspace: SessionWorkspace, title: str | None = None
    ) -> None:
        self.agent = agent
        self.model = model
        self.workspace = workspace
        self.title = title
        self.mode = "ask"
        self.prompting: Prompting | None = None
        self.arrived: list[Prompt] = []
        self._cancelled: list[Prompt] = []
        self.spent: float | None = 0.0

    def cancel(self) -> None:
        """Cancel the client's prompts, including those not begun yet."""
        self._cancelled += self.arrived
        self.arrived = []
        if self.prompting is not None:
            self.prompting.cancel()

    def was_cancelled(self, prompt: Prompt) -> bool:
        """Return True if this prompt was cancelled before it began. Call it once, when the prompt begins."""
        # Identity, because two prompts of a client may be equal.
        self.arrived = [each for each in self.arrived if each is not prompt]
        left = [each for each in self._cancelled if each is not prompt]
        cancelled = len(left) < len(self._cancelled)
        self._cancelled = left
        return cancelled

    def state(self, root: Root) -> dict[str, Json]:
        """Return the current mode, the possible modes, and the options, for the reply that opens a session."""
        modes = [{"id": id, "name": name} for id, name in MODES.items()]
        return {"modes": {"currentModeId": self.mode, "availableModes": modes}, "configOptions": self.options(root)}

    def options(self, root: Root) -> list[Json]:
        """Return the options for the user: the model, and the mode for clients that show only options."""
        settings = root.settings
        known = [
            f"{client.name or client.type}:{model.name}"
            for client in settings.clients
            for model in client.models
            if model.type == "chat"
        ]
        models = list(dict.fromkeys(id for id in (settings.model, self.model, *known) if id))
        option = {
            "id": MODEL,
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": self.model or "",
            "options": [{"value": "", "name": "As set by the agent"}, *({"value": id, "name": id} for id in models)],
        }
        mode = {
            "id": MODE,
            "name": "Permissions",
            "category": "mode",
            "type": "select",
            "currentValue": self.mode,
            "options": [{"value": id, "name": name} for id, name in MODES.items()],
        }
        return [option, mode]


class SessionWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """Directories and servers of a session: `cwd`, None for the process's; additional `roots`; additional `servers`."""

    cwd: Path | None = None
    roots: tuple[Path, ...] = ()
    servers: tuple[Server, ...] = ()

    def applied_to(self, request: RunRequest) -> RunRequest:
        """Return a run request with these directories and servers added."""
        cwd = None if self.cwd is None else str(self.cwd)
        return msgspec.structs.replace(request, cwd=cwd, roots=tuple(map(str, self.roots)), servers=self.servers)


async def workspace_of(caller: Caller, place: Place, *, refused: str = "") -> SessionWorkspace:
    """Validate the directories and servers of a client.

    Args:
        refused: reason why servers are not possible; "" if they are.

    Raises:
        UsageError: a directory does not exist, or a server is invalid.
        Denied: the caller may not set servers or directories.
    """
    directories = [
        ("cwd", place.cwd),
        *(("additionalDirectories", each) for each in place.additional_directories or ()),
    ]
    for name, each in directories:
        if not Path(each).is_absolute() or "\0" in each:
            raise UsageError(f"`{name}` must be an absolute path, not {each[:100]!r}")
    if place.mcp_servers or place.additional_directories:
        caller.need("run:files")
    if place.mcp_servers and refused:
        raise UsageError(f"`mcpServers`: {refused}")
    if not caller.has("run:files"):
        return SessionWorkspace()
    for name, each in directories:
        if not await trio.to_thread.run_sync(Path(each).is_dir):
            raise UsageError(f"`{name}`: there is no directory {each[:1000]}")
    cwd, *roots = (Path(each) for _, each in directories)
    if len(place.mcp_servers or ()) > MOST_SERVERS:
        raise UsageError(f"`mcpServers`: a session may bring at most {MOST_SERVERS} servers")
    servers = tuple(_server(each, cwd) for each in place.mcp_servers or ())
    return SessionWorkspace(cwd=cwd, roots=tuple(roots), servers=servers)


def _server(given: McpServer, cwd: Path) -> Server:
    name = re.sub(r"[^\w.-]", "-", given.name)[:60] or "server"
    where = f"`mcpServers`: '{given.name[:60]}'"
    if given.type == "stdio":
        if not given.command:
            raise UsageError(f"{where} has no `command`")
        env = {each.name: each.value for each in given.env or ()}
        if "\0" in "".join((given.command, *(given.args or ()), *env, *env.values())) or any("=" in key for key in env):
            raise UsageError(
                f"{where}: `command`, `args` and `env` can't contain a NUL character, and the name of a "
                "variable can't contain `=`"
            )
        return Server(
            name=name, type="stdio", command=given.command, args=tuple(given.args or ()), env=env, cwd=str(cwd)
        )
    if not is_web_address(given.url):
        raise UsageError(f"{where}: `url` must be an http:// or https:// address, not {given.url[:100]!r}")
    for each in given.headers or ():
        if not _HEADER_NAME.fullmatch(each.name):
            raise UsageError(f"{where}: {each.name[:60]!r} can't be the name of an HTTP header")
        if not is_header_value(each.value):
            raise UsageError(f"{where}: the value of header {each.name[:60]} {NO_HEADER_VALUE}")
    return Server(
        name=name, type=given.type, url=given.url, headers={each.name: each.value for each in given.headers or ()}
    )
