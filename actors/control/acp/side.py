"""The agent's side of ACP on one connection: its methods. Each session is one of the store, played by the hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .... import __version__
from ....protocol.control import acp
from ....protocol.control.errors import Refused
from ....protocol.control.own import StartRun
from ....protocol.errors import Conflict, NotFound, UsageError
from ....protocol.jsonrpc import INVALID_PARAMS, UNREADABLE, Json
from .prompting import Prompting
from .replay import replay

if TYPE_CHECKING:
    from ...sessions.live import Sessions
    from ...sessions.store import Stored
    from ..peer import Peer

MODES = {"ask": "Ask first", "yes": "Allow all"}
"""Whether tools ask before they change something. `ask` is what the user's settings say."""

MODEL = "model"
PAGE = 100


class _Open:
    """A session that this client works with."""

    def __init__(self, agent: str | None, model: str | None) -> None:
        self.agent = agent
        self.model = model
        self.mode = "ask"
        self.prompting: Prompting | None = None


class Side:
    """See the module.

    Args:
        agent: whose sessions `session/new` makes, where the client names no agent; None for a model without one.
    """

    methods = acp.METHODS

    def __init__(self, agent: str | None = None) -> None:
        self._agent = agent
        self._peer: Peer
        self._forms = False
        self._open: dict[str, _Open] = {}
        self._calls: dict[str, tuple[Any, Callable[[Any], Any]]] = {
            "initialize": (acp.Initialize, self._initialize),
            "authenticate": (acp.Authenticate, self._authenticate),
            "session/new": (acp.NewSession, self._new),
            "session/load": (acp.OldSession, self._load),
            "session/resume": (acp.OldSession, self._resume),
            "session/list": (acp.ListSessions, self._list),
            "session/prompt": (acp.Prompt, self._prompt),
            "session/close": (acp.OfSession, self._close),
            "session/delete": (acp.OfSession, self._delete),
            "session/set_mode": (acp.SetMode, self._set_mode),
            "session/set_config_option": (acp.SetConfigOption, self._set_option),
        }

    # --- the connection -------------------------------------------------------------------------------------

    def attach(self, peer: Peer) -> None:
        """The connection is there."""
        self._peer = peer

    async def call(self, method: str, params: msgspec.Raw) -> Json:
        """Answer a request."""
        kind, answer = self._calls[method]
        return await answer(msgspec.json.decode(params, type=kind))

    def notified(self, method: str, params: msgspec.Raw) -> None:
        """`session/cancel`."""
        if method == "session/cancel":
            try:
                id = msgspec.json.decode(params, type=acp.OfSession).session_id
            except UNREADABLE:
                return
            session = self._open.get(id)
            if session is not None and session.prompting is not None:
                session.prompting.cancel()

    def close(self) -> None:
        """The connection is gone; its prompts are cancelled with their requests."""
        self._open.clear()

    # --- the beginning --------------------------------------------------------------------------------------

    async def _initialize(self, params: acp.Initialize) -> Json:
        shows = params.client_capabilities.elicitation
        self._forms = shows is not None and (shows.form is not None or shows.url is None)
        return {
            "protocolVersion": acp.VERSION,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": False, "sse": False},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
            },
            "agentInfo": {"name": "callboard", "title": "Callboard", "version": __version__},
            "authMethods": [],
        }

    async def _authenticate(self, params: acp.Authenticate) -> Json:
        raise Refused(
            f"there is no method {params.method_id!r} to authenticate by; none is needed", number=INVALID_PARAMS
        )

    # --- sessions -------------------------------------------------------------------------------------------

    async def _new(self, params: acp.NewSession) -> Json:
        _check_place(params.cwd)
        agent = params.agent or self._agent
        scope = None if agent is None else self._checked(agent)
        made = await self._sessions.create(self._peer.caller, agent=scope, cwd=params.cwd)
        session = self._open[made.id] = _Open(agent, made.model)
        return {"sessionId": made.id, **self._state(session)}

    async def _load(self, params: acp.OldSession) -> Json:
        stored = await self._opened(params)
        for update in replay(stored.session):
            await self._peer.notify("session/update", {"sessionId": stored.id, "update": update})
        return self._state(self._open[stored.id])

    async def _resume(self, params: acp.OldSession) -> Json:
        stored = await self._opened(params)
        return self._state(self._open[stored.id])

    async def _opened(self, params: acp.OldSession) -> Stored:
        if params.cwd:
            _check_place(params.cwd)
        stored = await self._sessions.get(self._peer.caller, _checked_id(params.session_id))
        known = self._open.get(stored.id)
        if known is None or known.prompting is None:
            self._open[stored.id] = _Open(stored.agent, stored.session.model)
        return stored

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
        if session.prompting is not None:
            session.prompting.cancel()
        return {}

    async def _delete(self, params: acp.OfSession) -> Json:
        await self._sessions.delete(self._peer.caller, _checked_id(params.session_id))
        self._open.pop(params.session_id, None)
        return {}

    # --- what is said ---------------------------------------------------------------------------------------

    async def _prompt(self, params: acp.Prompt) -> Json:
        session = self._of(params.session_id)
        if session.prompting is not None:
            raise Conflict("a prompt of this session is at work; wait for its end, or cancel it")
        text = acp.text_of_prompt(params.prompt)
        if not text.strip():
            raise UsageError("the prompt says nothing")
        prompting = session.prompting = Prompting(self._peer, params.session_id, forms=self._forms)
        wanted = StartRun(
            target=session.agent or "",
            prompt=text,
            model=session.model,
            session=params.session_id,
            yes=session.mode == "yes",
        )
        try:
            return {"stopReason": await prompting.play(wanted)}
        finally:
            session.prompting = None

    async def _set_mode(self, params: acp.SetMode) -> Json:
        session = self._of(params.session_id)
        if params.mode_id not in MODES:
            raise UsageError(f"there is no mode {params.mode_id!r}; there are {', '.join(MODES)}")
        if params.mode_id == "yes":
            self._peer.caller.need("answer:questions")
        session.mode = params.mode_id
        update = {"sessionUpdate": "current_mode_update", "currentModeId": session.mode}
        await self._peer.notify("session/update", {"sessionId": params.session_id, "update": update})
        return {}

    async def _set_option(self, params: acp.SetConfigOption) -> Json:
        session = self._of(params.session_id)
        if params.config_id != MODEL:
            raise UsageError(f"there is no option {params.config_id!r}; there is `{MODEL}`")
        if not isinstance(params.value, str):
            raise UsageError("the value of `model` is the id of a model, client:model")
        session.model = self._peer.hub.root.gateway.check(params.value) if params.value else None
        return {"configOptions": self._options(session)}

    # --- inside ---------------------------------------------------------------------------------------------

    @property
    def _sessions(self) -> Sessions:
        return self._peer.hub.root.sessions

    def _of(self, id: str) -> _Open:
        session = self._open.get(id)
        if session is None:
            raise NotFound(f"there is no open session '{id[:60]}'; session/load or session/resume opens one")
        return session

    def _checked(self, agent: str) -> str | None:
        """Whose sessions an agent's are; that it can be run is seen now, not with the first prompt."""
        from ...runs.target import find, read
        from ...sessions.play import agent_of
        from ..starting import arguments_of

        arguments_of(self._peer.caller, StartRun(target=agent))
        root = self._peer.hub.root
        return agent_of(read(find(agent, config_dir=root.config_dir), root.config_dir, shelf=root.shelf))

    def _state(self, session: _Open) -> dict[str, Json]:
        modes = [{"id": id, "name": name} for id, name in MODES.items()]
        return {
            "modes": {"currentModeId": session.mode, "availableModes": modes},
            "configOptions": self._options(session),
        }

    def _options(self, session: _Open) -> list[Json]:
        settings = self._peer.hub.root.settings
        known = [
            f"{client.name or client.type}:{model.name}"
            for client in settings.clients
            for model in client.models
            if model.type == "chat"
        ]
        models = list(dict.fromkeys(id for id in (settings.model, session.model, *known) if id))
        option = {
            "id": MODEL,
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": session.model or "",
            "options": [{"value": "", "name": "As the agent says"}, *({"value": id, "name": id} for id in models)],
        }
        return [option]


def _check_place(cwd: str) -> None:
    if not Path(cwd).is_absolute() or "\0" in cwd:
        raise UsageError(f"`cwd` is an absolute path, not {cwd[:100]!r}")


def _checked_id(id: str) -> str:
    from ...sessions.names import as_id

    known = as_id(id)
    if known is None:
        raise NotFound(f"there is no session '{id[:60]}'")
    return known
