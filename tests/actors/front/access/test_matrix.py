"""Every route and every method against every caller that may not: a new one is in here by being there.

The routes are those that the application has, the methods those that a connection answers. What each needs is said by
the table of scopes alone; a route or a method that nobody has entered there fails the first test.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.routing import Match
from starlette.routing import Route as Path_
from support.access_server import FORBIDDEN, NOT_FOUND, USER, AccessServer, open_access_server, started
from support.http_server import Serve

from callboard.actors.front.access.scopes import METHODS
from callboard.actors.front.control.methods import METHODS as OWN
from callboard.actors.front.http.routes import find_route, routes
from callboard.protocol.control import acp, chat
from callboard.protocol.control.caller import SCOPES

ROUTES = {(route.method, route.path): route.rule for route in routes()}
SERVED = {*OWN, *acp.METHODS, *chat.METHODS}
ROUTE_SCOPES = [(route, scope) for route, rule in ROUTES.items() for scope in rule.scopes]
METHOD_SCOPES = [(method, scope) for method in sorted(SERVED) for scope in METHODS[method].scopes]
ABOUT = ("run", "before", "path", "question", "session", "session_id")
"""Parameters that name a thing which is somebody's."""

PLAIN = {
    "at": 1,
    "cwd": "/tmp",
    "value": "x",
    "text": "x",
    "alias": "x",
    "mode_id": "ask",
    "config_id": "model",
    "prompt": [],
    "target": "",
}
BODIES: dict[str, Any] = {
    "answer": {"value": "x"},
    "fork": {"at": 1},
    "completions": {"prompt": "x"},
    "agent": {"name": "asker"},
    "rag": {"name": "notes"},
    "role": {"name": "code"},
}
ACP = {
    "session/load": acp.OldSession,
    "session/resume": acp.OldSession,
    "session/prompt": acp.Prompt,
    "session/close": acp.OfSession,
    "session/delete": acp.OfSession,
    "session/set_mode": acp.SetMode,
    "session/set_config_option": acp.SetConfigOption,
}


def filled(template: str, **known: str) -> str:
    """A path that fits; what is not known is a word."""
    return re.sub(r"\{(\w+)(?::path)?\}", lambda match: known.get(match[1], "some"), template)


def params_about(method: str) -> list[tuple[str, Any]]:
    """The parameters of a method that name a thing which is somebody's, each with the struct they are in."""
    known = {
        **{name: each.params for name, each in OWN.items()},
        **{name: pair[0] for name, pair in chat.METHODS.items()},
    }
    kind = ACP[method] if method in ACP else known.get(method)
    return [] if kind is None else [(field.name, kind) for field in msgspec.structs.fields(kind) if field.name in ABOUT]


def params_of(kind: Any, field: str, value: str) -> dict[str, Any]:
    """Parameters with this one, and what else has to be there."""
    needed = [each for each in msgspec.structs.fields(kind) if each.required or each.name == field]
    return {each.encode_name: value if each.name == field else PLAIN[each.name] for each in needed}


def test_nothing_is_served_that_the_table_of_scopes_does_not_know() -> None:
    assert {(each.method, each.path): find_route(each.method, each.path).rule for each in routes()} == ROUTES
    assert set(METHODS) >= SERVED
    assert {name for name in METHODS if name not in SERVED} == {"$/cancel_request", "session/cancel"}, "notifications"
    assert {each for rule in (*ROUTES.values(), *METHODS.values()) for each in rule.scopes} <= set(SCOPES)


@pytest.fixture
async def lacking(serve: Serve, tmp_path: Path) -> AsyncIterator[AccessServer]:
    """A server where, for each scope, somebody has all others; `nobody` has none, `all` every one."""
    callers = {scope: tuple(other for other in SCOPES if other != scope) for scope in SCOPES}
    async with open_access_server(serve, tmp_path, {**callers, "nobody": (), "all": SCOPES}) as access_server:
        yield access_server


async def test_every_route_refuses_who_lacks_one_of_its_scopes_and_who_has_no_token(lacking: AccessServer) -> None:
    for who in (*SCOPES, "nobody"):
        async with lacking.http(who) as http:
            for (method, template), scope in ROUTE_SCOPES:
                if who in (scope, "nobody"):
                    told = await http.request(method, filled(template), json={})
                    assert told.status_code == 403, (method, template, who)
    async with lacking.http("stranger") as http:
        for (method, template), rule in ROUTES.items():
            told = await http.request(method, filled(template), json={})
            assert told.status_code in ((200, 404) if rule.open else (401, 429)), (method, template)


async def test_every_method_refuses_who_lacks_one_of_its_scopes(lacking: AccessServer) -> None:
    for scope in SCOPES:
        async with lacking.socket(scope) as call:
            for method in [method for method, needed in METHOD_SCOPES if needed == scope]:
                assert await call(method) == FORBIDDEN, (method, scope)
    async with lacking.socket("nobody") as call:
        for method in SERVED:
            if METHODS[method].scopes:
                assert await call(method) == FORBIDDEN, method


async def test_what_every_method_refuses_to_those_it_lets_those_have_who_have_all_scopes(lacking: AccessServer) -> None:
    async with lacking.socket("all") as call:
        for method, _ in METHOD_SCOPES:
            if method != "_mcp/reload":
                assert await call(method) != FORBIDDEN, method


@pytest.fixture
async def two(serve: Serve, tmp_path: Path) -> AsyncIterator[AccessServer]:
    """Alice, and Bob, who has every scope that makes nobody an administrator."""
    every = tuple(scope for scope in SCOPES if not scope.startswith("admin:"))
    async with open_access_server(serve, tmp_path, {"alice": USER, "bob": every}) as access_server:
        (access_server.config / "knowledge").mkdir()
        (access_server.config / "knowledge" / "notes.yaml").write_text("documents: [x.md]\n")
        yield access_server


async def things_of_alice(access_server: AccessServer) -> dict[str, str]:
    """A run that asks a question, and a session."""
    run = await started(access_server)
    async with access_server.http("alice") as http:
        question = (await http.get("/v1/questions")).json()["questions"][0]["id"]
        session = (await http.post("/v1/sessions", json={"alias": "bridges"})).json()["id"]
    return {"run": run, "before": run, "path": f"/{run}", "question": question, "session": session, "id": session}


async def unharmed(access_server: AccessServer, things: dict[str, str]) -> None:
    """It is all as Alice has left it."""
    async with access_server.http("alice") as http:
        assert (await http.get(f"/v1/runs/{things['run']}")).json()["open_questions"] == 1
        session = (await http.get(f"/v1/sessions/{things['session']}")).json()
        assert (session["alias"], session["owner"], session["agent"]) == ("bridges", "alice", None)


async def test_every_method_refuses_what_is_another_s(two: AccessServer) -> None:
    things = await things_of_alice(two)
    seen = 0
    async with two.socket("bob") as call:
        for method in sorted(SERVED):
            for field, kind in params_about(method):
                value = things["session"] if field == "session_id" else things[field]
                told = await call(method, **params_of(kind, field, value))
                assert told in (FORBIDDEN, NOT_FOUND), (method, field, told)
                seen += 1
        for name in (
            "_session/get",
            "_session/delete",
            "_session/rename",
            "_session/set_role",
            "_session/export",
            "_session/empty",
        ):
            assert await call(name, session="bridges", **({"alias": "x"} if "rename" in name else {})) == FORBIDDEN
        for hidden in ("_run/list", "_actor/tree", "_session/list", "_question/list"):
            text = str(await call(hidden))
            assert not [value for value in things.values() if value in text], hidden
    assert seen > 20
    await unharmed(two, things)


async def test_every_route_refuses_what_is_another_s(two: AccessServer) -> None:
    things = await things_of_alice(two)
    seen = 0
    async with two.http("bob") as http:
        for method, template in ROUTES:
            names = set(re.findall(r"\{(\w+)\}", template)) & set(things)
            if not names:
                continue
            body = BODIES.get(template.rpartition("/")[2])
            response = await http.request(method, filled(template, **things), json=body)
            assert response.status_code in (403, 404), (method, template, response.text)
            seen += 1
        for session in (things["session"], "bridges"):
            response = await http.post("/v1/runs", json={"target": "", "prompt": "x", "session": session})
            assert response.status_code == 403, response.text
        resume = [{"interruptId": things["question"], "status": status} for status in ("resolved", "cancelled")]
        for entry in resume:
            given = {"threadId": "t", "runId": "r", "messages": [], "resume": [{**entry, "payload": "x"}]}
            assert (await http.post("/agui", json=given)).status_code == 409, "it is as if there were no such question"
        assert (await http.get("/v1/questions", params={"run": things["run"]})).status_code == 403
        assert (await http.get("/v1/runs", params={"before": things["run"]})).status_code == 403
    assert seen > 12
    await unharmed(two, things)


async def test_what_others_call_their_sessions_is_no_hint(two: AccessServer) -> None:
    await things_of_alice(two)
    async with two.http("bob") as http:
        for name in ("bridge", "bridgess"):
            response = await http.get(f"/v1/sessions/{name}")
            assert response.status_code == 404, response.text
            assert "bridges'" not in response.text
    async with two.http("alice") as http:
        assert "bridges'" in (await http.get("/v1/sessions/bridge")).text


async def test_who_may_not_see_others_runs_at_all_is_not_even_told_that_there_are_any(
    serve: Serve, tmp_path: Path
) -> None:
    blind = tuple(scope for scope in SCOPES if scope != "read:runs" and not scope.startswith("admin:"))
    async with open_access_server(serve, tmp_path, {"alice": USER, "blind": blind}) as access_server:
        run = await started(access_server)
        async with access_server.socket("blind") as call:
            assert await call("_run/cancel", run=run) == NOT_FOUND
            assert await call("_actor/cancel", path=f"/{run}") == NOT_FOUND
            assert await call("_question/list") == {"questions": []}


# --- the table finds what the router finds -------------------------------------------------------------------

_ROUTER = [Path_(path, endpoint=lambda _: None) for path in dict.fromkeys(route.path for route in routes())]
_WORDS = sorted(
    {word for _, template in ROUTES for word in template.split("/") if "{" not in word} | {"", "x", "..", "\n"}
)


@given(st.lists(st.sampled_from(_WORDS) | st.text(max_size=3), max_size=6).map(lambda words: "/" + "/".join(words)))
@example("/v1/runs\n")
@example("//v1/runs")
@example("/v1/runs/")
@example("/v1/models/a/../../runs")
def test_no_path_reaches_a_handler_by_another_route_than_that_by_which_its_scopes_were_found(path: str) -> None:
    scope = {"type": "http", "path": path, "method": "GET", "root_path": "", "headers": []}
    reached = next((route.path for route in _ROUTER if route.matches(scope)[0] != Match.NONE), None)
    for method in ("GET", "POST", "DELETE"):
        found = find_route(method, path)
        assert found is None or reached in (None, found.template), "none is a refusal"
