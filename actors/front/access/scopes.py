"""What each route and each method asks for: the one table, for HTTP and for the websocket.

What is not in it can be used with the scope `*` only; a route is not found by others. The same table says what
the audit log calls a request, and gives the metrics the templates that they have for labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ....protocol.control.caller import Caller
from ....protocol.errors import Denied
from .audit import Action


@dataclass(frozen=True, slots=True)
class Rule:
    """What one thing that can be asked for needs.

    Attributes:
        scopes: all of them are needed.
        action: what the audit log calls it; None where it is not worth a line.
        open: it needs no caller at all.
        costs: how many requests it counts as for the rate limit; over the websocket, where most messages are small.
    """

    scopes: tuple[str, ...] = ()
    action: Action | None = None
    open: bool = False
    costs: float = 0


EVERYTHING = Rule(("*",))
"""For what is not in the tables."""

OPEN = Rule(open=True)
ANYBODY = Rule()
READ_RUNS = Rule(("read:runs",))
LIST_RUNS = Rule(("read:runs",), costs=0.2)  # a page that shows them looks every other second
CONTROL = Rule(("write:runs",), "RunControl")
START = Rule(("run:agents",), costs=1)
ANSWER = Rule(("answer:questions",), "QuestionAnswer")
QUESTIONS = Rule(("answer:questions",))
READ_AGENTS = Rule(("read:agents",))
READ_MODELS = Rule(("read:models",))
READ_SESSION = Rule(("read:sessions",), "SessionRead")
NEW_SESSION = Rule(("write:sessions",), "SessionCreate", costs=1)
CHANGE_SESSION = Rule(("write:sessions",), "SessionUpdate")
END_SESSION = Rule(("write:sessions",), "SessionDelete")
PROMPT = Rule(("write:sessions", "run:agents"), "SessionUpdate", costs=1)

ROUTES: dict[tuple[str, str], Rule] = {
    ("GET", "/healthz/live"): OPEN,
    ("GET", "/healthz/ready"): OPEN,
    ("GET", "/"): OPEN,
    ("GET", "/ui/{path:path}"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/metrics"): Rule(("admin:metrics",)),
    ("POST", "/v1/auth/check"): ANYBODY,
    ("GET", "/v1/info"): ANYBODY,
    ("GET", "/v1/models"): READ_MODELS,
    ("GET", "/v1/models/{model:path}"): READ_MODELS,
    ("GET", "/v1/agents"): READ_AGENTS,
    ("GET", "/v1/roles"): READ_AGENTS,
    ("GET", "/v1/rags"): READ_AGENTS,
    ("POST", "/v1/rags/{name}/rebuild"): Rule(("admin:mcp",), "KnowledgeRebuild"),
    ("GET", "/v1/info/mcp"): Rule(("admin:mcp",)),
    ("POST", "/v1/mcp/reload"): Rule(("admin:mcp",), "McpReload"),
    ("POST", "/v1/completions"): START,
    ("POST", "/v1/chat/completions"): START,
    ("POST", "/agui"): START,
    ("GET", "/agui/{run}"): READ_RUNS,
    ("POST", "/v1/runs"): START,
    ("GET", "/v1/runs"): READ_RUNS,
    ("GET", "/v1/runs/{run}"): READ_RUNS,
    ("DELETE", "/v1/runs/{run}"): CONTROL,
    ("GET", "/v1/runs/{run}/events"): READ_RUNS,
    ("GET", "/v1/runs/{run}/questions"): QUESTIONS,
    ("POST", "/v1/runs/{run}/cancel"): CONTROL,
    ("GET", "/v1/questions"): QUESTIONS,
    ("POST", "/v1/questions/{question}/answer"): ANSWER,
    ("POST", "/v1/sessions"): NEW_SESSION,
    ("GET", "/v1/sessions"): Rule(("read:sessions",)),
    ("GET", "/v1/sessions/{id}"): READ_SESSION,
    ("DELETE", "/v1/sessions/{id}"): END_SESSION,
    ("POST", "/v1/sessions/{id}/completions"): PROMPT,
    ("POST", "/v1/sessions/{id}/compress"): CHANGE_SESSION,
    ("POST", "/v1/sessions/{id}/empty"): CHANGE_SESSION,
    **{
        (method, f"/v1/sessions/{{id}}/{what}"): CHANGE_SESSION
        for method in ("POST", "DELETE")
        for what in ("role", "agent", "rag")
    },
}
"""By method and template."""

METHODS: dict[str, Rule] = {
    "initialize": ANYBODY,
    "authenticate": ANYBODY,
    "$/cancel_request": ANYBODY,
    "_server/info": ANYBODY,
    "_target/list": READ_AGENTS,
    "_run/start": START,
    **dict.fromkeys(("_run/get", "_run/subscribe", "_run/unsubscribe", "_run/events", "_run/graph"), READ_RUNS),
    "_run/list": LIST_RUNS,
    **dict.fromkeys(("_run/cancel", "_run/delete"), CONTROL),
    **dict.fromkeys(("_actor/tree", "_actor/subscribe", "_actor/unsubscribe", "_actor/inspect"), READ_RUNS),
    **dict.fromkeys(("_actor/send", "_actor/pause", "_actor/resume", "_actor/cancel"), CONTROL),
    **dict.fromkeys(("_question/list", "_question/subscribe", "_question/unsubscribe"), QUESTIONS),
    "_question/answer": ANSWER,
    "_mcp/status": Rule(("admin:mcp",)),
    "_mcp/reload": Rule(("admin:mcp",), "McpReload"),
    "_session/list": Rule(("read:sessions",)),
    **dict.fromkeys(("_session/get", "_session/export"), READ_SESSION),
    **dict.fromkeys(("_session/rename", "_session/compress", "_session/empty"), CHANGE_SESSION),
    "_session/delete": END_SESSION,
    "session/new": NEW_SESSION,
    "session/list": Rule(("read:sessions",)),
    **dict.fromkeys(("session/load", "session/resume"), READ_SESSION),
    "session/prompt": PROMPT,
    **dict.fromkeys(("session/cancel", "session/set_mode", "session/set_config_option"), CHANGE_SESSION),
    "session/close": Rule(("write:sessions",)),
    "session/delete": END_SESSION,
}
"""By JSON-RPC method."""


def need(caller: Caller, rule: Rule) -> None:
    """Raise `Denied` if a scope is missing; the text names all that are."""
    missing = [scope for scope in rule.scopes if not caller.has(scope)]
    if missing:
        raise Denied(f"this needs the scope {' and '.join(missing)}, which {caller.subject} does not have")


# --- finding a route -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """A template that a path fits, its rule, and what stands in the template's braces first."""

    template: str
    rule: Rule
    target: str | None


def find_route(method: str, path: str) -> Found | None:
    """What is asked for; None if the table has no such thing."""
    for pattern, template, rule in _by_method.get("GET" if method == "HEAD" else method, ()):
        found = pattern.fullmatch(path)
        if found is not None:
            return Found(template, rule, found[1] if pattern.groups else None)
    return None


def templates_at(path: str) -> Iterator[str]:
    """The templates that a path fits, whatever the method."""
    for method in _by_method:
        if (found := find_route(method, path)) is not None:
            yield found.template


def _pattern(template: str) -> re.Pattern[str]:
    text = re.sub(r"\\\{\w+:path\\\}", "(.+)", re.escape(template))
    return re.compile(re.sub(r"\\\{\w+\\\}", "([^/]+)", text), re.DOTALL)


_by_method: dict[str, list[tuple[re.Pattern[str], str, Rule]]] = {}
for (_method, _template), _rule in ROUTES.items():
    _by_method.setdefault(_method, []).append((_pattern(_template), _template, _rule))
