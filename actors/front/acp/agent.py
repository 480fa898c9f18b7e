"""Methods of an ACP agent on one connection. Sessions are in the store, and the hub runs their prompts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....protocol.control import acp
from ....protocol.control.caller import LOCAL
from ....protocol.control.errors import Refused
from ....protocol.control.own import StartRun
from ....protocol.errors import CallboardError, Conflict, NotFound, UsageError
from ....protocol.jsonrpc import INVALID_PARAMS, Json
from ....protocol.version import VERSION
from ...io.outbox import over_pipes, private_stdio
from ...runs.loading import durable_by
from ...runs.root import Root, played
from ..control.method import Method
from ..control.opening import open_hub
from ..control.peer import ControlPeer
from ..control.requests import check_model
from ..control.runs.live_run import HubOptions
from .prompting import MODE, MODEL, MODES, AcpSession, Prompting, Shows, workspace_of
from .updates import replay

if TYPE_CHECKING:
    from ....supervisors import Actor
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
            f"there is no method {params.method_id!r} to authenticate by; none is needed", number=INVALID_PARAMS
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
            raise Conflict("a prompt of this session is at work; wait for its end, or cancel it")
        text, images = acp.read_prompt(params.prompt)
        if not text.strip() and not images:
            raise UsageError("the prompt says nothing")
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
            raise UsageError(f"there is no mode {mode!r}; there are {', '.join(MODES)}")
        if mode == "yes":
            self._peer.caller.need("answer:questions")
        session.mode = mode
        update = {"sessionUpdate": "current_mode_update", "currentModeId": mode}
        await self._peer.notify("session/update", {"sessionId": id, "update": update})

    async def _set_option(self, params: acp.SetConfigOption) -> Json:
        session = self._of(params.session_id)
        if params.config_id not in (MODEL, MODE):
            raise UsageError(f"there is no option {params.config_id!r}; there are `{MODEL}` and `{MODE}`")
        if not isinstance(params.value, str):
            expected = "the id of a model, client:model" if params.config_id == MODEL else " or ".join(MODES)
            raise UsageError(f"the value of `{params.config_id}` is {expected}")
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
            raise NotFound(f"there is no open session '{id[:60]}'; session/load or session/resume opens one")
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
        only = f"'{agent}' is no LLM agent: it has the servers that its own file names; send an empty list"
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
