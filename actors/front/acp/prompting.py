"""Execution of one prompt as a run of the hub, with its events and questions sent to the client.

a permission, yes/no, a choice        session/request_permission with options; `always` is allow_always
a text, several choices               elicitation/create, if the client can show forms
anything else                         the question's default, or none
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import msgspec
import trio

from ....protocol.chat import ImagePart
from ....protocol.control.acp import McpServer, Place, Prompt, StopReason, text_block
from ....protocol.control.errors import RUN_FAILED, Refused
from ....protocol.control.own import StartRun
from ....protocol.control.things import QuestionAsked
from ....protocol.errors import CallboardError, ConfigError, NobodyToAsk, UsageError
from ....protocol.events.decode import decode
from ....protocol.mcp.config import NO_HEADER_VALUE, Server, is_header_value, is_web_address
from ....protocol.outcome import Outcome
from ....protocol.requests import RunRequest
from ..control.logs.reading import LoggedEvent
from .updates import Updates, chunk

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ....supervisors import Actor, Ref
    from ...runs.root import Root
    from ..control.peer import ControlPeer


log = logging.getLogger("callboard.control")

Json = Any
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
    """Optional display features of the client: `forms`, `notices`."""

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
        raise NobodyToAsk(f"this client can't show a question: {question['text']}")
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
        """Return True if this prompt, which begins now, was cancelled before."""
        # Identity, because two prompts of a client may be equal.
        self.arrived = [each for each in self.arrived if each is not prompt]
        left = [each for each in self._cancelled if each is not prompt]
        cancelled = len(left) < len(self._cancelled)
        self._cancelled = left
        return cancelled

    def state(self, root: Root) -> dict[str, Json]:
        """Return the current and possible settings."""
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
            "options": [{"value": "", "name": "As the agent says"}, *({"value": id, "name": id} for id in models)],
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
        """Apply them to a run request."""
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
            raise UsageError(f"`{name}` is an absolute path, not {each[:100]!r}")
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
        raise UsageError(f"`mcpServers`: a session brings {MOST_SERVERS} servers at most")
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
                f"{where}: a NUL can't be in `command`, `args` and `env`, nor `=` in the name of a variable"
            )
        return Server(
            name=name, type="stdio", command=given.command, args=tuple(given.args or ()), env=env, cwd=str(cwd)
        )
    if not is_web_address(given.url):
        raise UsageError(f"{where}: `url` is an http:// or https:// address, not {given.url[:100]!r}")
    for each in given.headers or ():
        if not _HEADER_NAME.fullmatch(each.name):
            raise UsageError(f"{where}: {each.name[:60]!r} can't be the name of a header")
        if not is_header_value(each.value):
            raise UsageError(f"{where}: the value of header {each.name[:60]} {NO_HEADER_VALUE}")
    return Server(
        name=name, type=given.type, url=given.url, headers={each.name: each.value for each in given.headers or ()}
    )
