"""docs/server.md: every route is there, and every example does what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import trio
from support.http_agents import ASKER, HELLO, LOOP
from support.http_server import ApiServer

from callboard.actors.front.http.call import STATUS
from callboard.actors.front.http.routes import routes

PAGE = (Path(__file__).parents[4] / "docs" / "server.md").read_text()
EXAMPLE = re.compile(r"^    (GET|POST|PUT|DELETE) (/\S+)(?: +(\d{3}))?(?:\n    > (.*))?$", re.MULTILINE)
EXAMPLES = [match.groups() for match in EXAMPLE.finditer(PAGE)]


def test_every_route_has_an_example() -> None:
    shown = [(method, path.partition("?")[0]) for method, path, _, _ in EXAMPLES]
    for route in routes():
        if route.tag != "page":
            pattern = re.sub(r"\{\w+:path\}", ".+", route.path)
            pattern = re.sub(r"\{\w+\}", "[^/]+", pattern)
            assert any(method == route.method and re.fullmatch(pattern, path) for method, path in shown), route.path


def test_every_code_stands_in_the_table_of_errors() -> None:
    table = PAGE[PAGE.index("| status | code |") : PAGE.index("### Information, roles and usage")]
    for code, status in STATUS.items():
        row = next(line for line in table.splitlines() if f"`{code}`" in line)
        assert str(status) in row.split("|")[1]


async def test_every_example_works(api_server: ApiServer) -> None:
    api_server.agent_runner.plain(LOOP, name="clerk")
    api_server.agent_runner.agent(HELLO, name="hello")
    api_server.agent_runner.agent(ASKER, name="asker")
    names: dict[str, str] = {}
    for method, path, status, body in EXAMPLES:
        for name, id in names.items():
            path = path.replace(name, id)
        if "QUESTION" in path:
            path = path.replace("QUESTION", await _question(api_server))
        given: Any = None if body is None else json.loads(body)
        created = (method, path) in (("POST", "/v1/sessions"), ("POST", "/v1/runs"))
        response = await api_server.client.request(method, path, json=given)
        assert response.status_code == int(status or (201 if created else 200)), f"{method} {path}: {response.text}"
        if created:
            names["SESSION" if path == "/v1/sessions" else "RUN"] = response.json()[
                "id" if path == "/v1/sessions" else "run"
            ]
        if path.endswith("/cancel"):
            await _over(api_server, names["RUN"])
        if method == "DELETE" and path == f"/v1/runs/{names.get('RUN')}":
            names["RUN"] = (await api_server.get("/v1/runs"))["runs"][0]["run"]


async def _question(api_server: ApiServer) -> str:
    with trio.fail_after(60):
        while not (found := (await api_server.get("/v1/questions"))["questions"]):
            await trio.sleep(0.01)
    return str(found[0]["id"])


async def _over(api_server: ApiServer, run: str) -> None:
    with trio.fail_after(60):
        while (await api_server.get(f"/v1/runs/{run}"))["status"] in ("running", "waiting"):
            await trio.sleep(0.01)
