"""Access rules: required scopes and audit action of each HTTP route and websocket method.

A route names its rule at its declaration (`http.routes`), rules of methods are here. A method without a rule needs the
scope `*`; a path without a route is reported as not found to other callers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....protocol.control.caller import Caller
from ....protocol.errors import Denied
from .audit import Action


@dataclass(frozen=True, slots=True)
class Rule:
    """Requirements of a route or method.

    Attributes:
        scopes: required scopes, all of them.
        action: action in the audit log; None for none.
        open: True if no caller is required.
        costs: number of requests it counts as for the rate limit; only over the websocket, where most messages are
            small.
    """

    scopes: tuple[str, ...] = ()
    action: Action | None = None
    open: bool = False
    costs: float = 0


EVERYTHING = Rule(("*",))
"""Rule of everything without a rule."""

OPEN = Rule(open=True)
ANYBODY = Rule()
READ_RUNS = Rule(("read:runs",))
LIST_RUNS = Rule(("read:runs",), costs=0.2)  # a page that shows runs polls every other second
READ_USAGE = Rule(("read:runs",), costs=0.2)
CONTROL = Rule(("write:runs",), "RunControl")
RESUME = Rule(("write:runs",), "RunControl", costs=1)
ROWS = Rule(("write:runs",), costs=0.2)
FORK = Rule(("write:runs", "run:agents"), "RunControl", costs=1)
RESTORE_FILES = Rule(("write:runs", "run:files"), "FilesRestore", costs=1)
START = Rule(("run:agents",), costs=1)
ANSWER = Rule(("answer:questions",), "QuestionAnswer")
QUESTIONS = Rule(("answer:questions",))
READ_AGENTS = Rule(("read:agents",))
READ_ROLES = Rule(("read:roles",))
WRITE_ROLE = Rule(("write:roles",), "RoleUpdate", costs=1)
DELETE_ROLE = Rule(("write:roles",), "RoleDelete")
READ_MODELS = Rule(("read:models",))
READ_SESSION = Rule(("read:sessions",), "SessionRead")
NEW_SESSION = Rule(("write:sessions",), "SessionCreate", costs=1)
CHANGE_SESSION = Rule(("write:sessions",), "SessionUpdate")
END_SESSION = Rule(("write:sessions",), "SessionDelete")
PROMPT = Rule(("write:sessions", "run:agents"), "SessionUpdate", costs=1)
METRICS = Rule(("admin:metrics",))
REBUILD_KNOWLEDGE = Rule(("admin:mcp",), "KnowledgeRebuild")
READ_MCP = Rule(("admin:mcp",))
RELOAD_MCP = Rule(("admin:mcp",), "McpReload")
LIST_SESSIONS = Rule(("read:sessions",))
CHAT = Rule(("run:agents", "read:runs"), costs=1)
CHAT_LINE = Rule(("run:agents", "read:runs", "write:runs"), costs=1)
LOOK_AT_CHAT = Rule(("run:agents", "read:runs"))

METHODS: dict[str, Rule] = {
    "initialize": ANYBODY,
    "authenticate": ANYBODY,
    "$/cancel_request": ANYBODY,
    "_server/info": ANYBODY,
    "_target/list": READ_AGENTS,
    "_run/start": START,
    **dict.fromkeys(("_run/get", "_run/subscribe", "_run/unsubscribe", "_run/events", "_run/graph"), READ_RUNS),
    **dict.fromkeys(("_run/calls", "_run/call", "_run/changes", "_run/output"), READ_RUNS),
    "_result/part": ANYBODY,  # the method that produced the result has its own rule
    "_run/restore": RESTORE_FILES,
    "_run/list": LIST_RUNS,
    **dict.fromkeys(("_run/cancel", "_run/delete"), CONTROL),
    "_run/resume": RESUME,
    **dict.fromkeys(("_run/rows", "_run/steps"), ROWS),
    "_run/fork": FORK,
    **dict.fromkeys(("_actor/tree", "_actor/subscribe", "_actor/unsubscribe", "_actor/inspect"), READ_RUNS),
    **dict.fromkeys(("_actor/send", "_actor/pause", "_actor/resume", "_actor/cancel"), CONTROL),
    **dict.fromkeys(("_question/list", "_question/subscribe", "_question/unsubscribe"), QUESTIONS),
    "_question/answer": ANSWER,
    "_usage/read": READ_USAGE,
    "_mcp/status": READ_MCP,
    "_mcp/reload": RELOAD_MCP,
    "_session/list": LIST_SESSIONS,
    **dict.fromkeys(("_session/get", "_session/export"), READ_SESSION),
    **dict.fromkeys(("_session/rename", "_session/set_role", "_session/compress", "_session/empty"), CHANGE_SESSION),
    "_session/delete": END_SESSION,
    "_chat/open": CHAT,
    "_chat/line": CHAT_LINE,
    "_chat/list": LIST_RUNS,
    **dict.fromkeys(("_chat/get", "_chat/watch", "_chat/unwatch"), READ_RUNS),
    "_chat/complete": LOOK_AT_CHAT,
    **dict.fromkeys(("_chat/interrupt", "_chat/close"), Rule(("run:agents",))),
    "session/new": NEW_SESSION,
    "session/list": LIST_SESSIONS,
    **dict.fromkeys(("session/load", "session/resume"), READ_SESSION),
    "session/prompt": PROMPT,
    **dict.fromkeys(("session/cancel", "session/set_mode", "session/set_config_option"), CHANGE_SESSION),
    "session/close": Rule(("write:sessions",)),
    "session/delete": END_SESSION,
}
"""Rules by JSON-RPC method."""


def need(caller: Caller, rule: Rule) -> None:
    """Raise `Denied` if a scope is missing; the text names all missing ones."""
    missing = [scope for scope in rule.scopes if not caller.has(scope)]
    if missing:
        raise Denied(f"this request needs the scope {' and '.join(missing)}, which {caller.subject} does not have")
