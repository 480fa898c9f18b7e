"""Replies to callers without the scope `run:files`: no path of the server's machine is in them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import trio
from support.access_server import AccessServer, open_access_server
from support.http_server import Serve

from callboard.actors.front.access.server_paths import ServerPaths
from callboard.actors.front.http.routes import routes
from callboard.protocol.control.caller import Caller

EVERYTHING = (
    *("run:agents", "read:runs", "write:runs", "read:sessions", "write:sessions", "read:agents", "read:models"),
    *("read:roles", "write:roles", "answer:questions", "admin:runs", "admin:sessions", "admin:mcp", "admin:metrics"),
)
SHOUTS = """
name: shouts
start: shout
nodes:
  shout: {type: script, script: shout.sh, next: done}
  done: {type: end, output: "{{state}}"}
"""
SCRIPT = """
echo "$0 in $PWD with $HOME" >&2
cat "$PWD/missing" || true
{end}
"""
METHODS = {
    "_run/list": {},
    "_target/list": {},
    "_session/list": {},
    "_question/list": {},
    "_run/start": {"target": "nothing-of-the-kind"},
    "_run/get": {"run": "RUN"},
    "_run/steps": {"run": "RUN"},
    "_run/changes": {"run": "RUN"},
    "_run/requests": {"run": "RUN"},
    "_run/output": {"run": "RUN"},
    "_run/events": {"run": "RUN"},
    "_run/subscribe": {"run": "RUN"},
    "_actor/list": {"run": "RUN"},
    "_chat/open": {},
    "_result/part": {"method": "_run/get", "params": {"run": "RUN"}},
}


@pytest.fixture
async def access_server(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AccessServer:
    home = tmp_path / "home-of-somebody"
    (home / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "work")
    async with open_access_server(serve, tmp_path, {"alice": EVERYTHING, "carol": (*EVERYTHING, "run:files")}) as made:
        yield made


def write_agents(access_server: AccessServer) -> None:
    for name, end in (("fails", 'echo "$PWD" >&2; exit 3'), ("works", """printf '{"where": "%s"}' "$PWD" """)):
        (access_server.config / "agents" / name).mkdir(parents=True)
        (access_server.config / "agents" / name / "graph.yaml").write_text(SHOUTS.replace("shouts", name))
        (access_server.config / "agents" / name / "shout.sh").write_text(SCRIPT.replace("{end}", end))
    (access_server.config / "agents" / "damaged").mkdir()
    (access_server.config / "agents" / "damaged" / "graph.yaml").write_text("start: x\nnodes: [")
    (access_server.config / "roles").mkdir(exist_ok=True)
    (access_server.config / "roles" / "odd.md").write_text("---\nmodel: [\n---\nhello")


async def test_no_reply_has_one_whatever_is_asked_for(access_server: AccessServer, tmp_path: Path) -> None:
    write_agents(access_server)
    said: list[tuple[str, bytes]] = []
    async with access_server.http("alice") as http:
        runs = []
        for target in ("fails", "works", "damaged", "asker", "/etc/passwd", "../x"):
            reply = await http.post("/v1/runs", json={"target": target})
            said.append((f"POST /v1/runs {target}", reply.content))
            if reply.status_code == 201:
                runs.append(reply.json()["run"])
        session = (await http.post("/v1/sessions", json={"agent": "works"})).json()["id"]
        reply = await http.post("/v1/runs", json={"target": "works", "prompt": "x", "session": session})
        said.append(("a run of a session", reply.content))
        assert reply.status_code == 201, reply.text
        runs.append(reply.json()["run"])
        for run in runs:
            with trio.fail_after(60):
                while (await http.get(f"/v1/runs/{run}")).json()["status"] == "running":
                    await trio.sleep(0.02)
            head = {"accept": "text/event-stream"}
            if run != runs[2]:
                said.append(("events", (await http.get(f"/v1/runs/{run}/events", headers=head)).content))
        for route in routes():
            if route.method not in ("GET", "POST") or route.path.startswith("/v1/agui"):
                continue
            for id in (runs[0], session, "odd", "none"):
                path = route.path.replace("{id}", id).replace("{run}", id).replace("{name}", id)
                if "{" in path or path.endswith("/events"):
                    continue
                body = {} if route.method == "POST" else None
                with trio.move_on_after(20):
                    reply = await http.request(route.method, path, json=body)
                    said.append((f"{route.method} {path}", reply.content))
    async with access_server.socket("alice") as call:
        for method, params in METHODS.items():
            told = json.loads(json.dumps(params).replace("RUN", runs[0]))
            said.append((method, json.dumps(await call(method, **told)).encode()))
    assert len(said) > 60
    assert any(b"[home]" in data or b"[cwd]" in data or b"[config]" in data or b"[tmp]" in data for _, data in said)
    for name, data in said:
        assert str(tmp_path).encode() not in data, (name, data)


async def test_a_caller_with_the_scope_gets_them(access_server: AccessServer) -> None:
    write_agents(access_server)
    async with access_server.http("carol") as http:
        session = (await http.post("/v1/sessions", json={"agent": "works"})).json()["id"]
        reply = await http.post("/v1/runs", json={"target": "works", "prompt": "x", "session": session})
        assert str(access_server.config) in reply.text


def test_of_directories_in_one_another_the_deeper_one_is_named() -> None:
    chance = random.Random(1)
    base = "/srv/of some & body/ü"
    paths = ServerPaths({"home": base, "config": f"{base}/.config/callboard", "cwd": f"{base}/work"})
    stranger = Caller("alice", frozenset({"run:agents"}))
    for _ in range(300):
        name, above = chance.choice([("home", base), ("config", f"{base}/.config/callboard"), ("cwd", f"{base}/work")])
        below = chance.choice(["", "/x", "/a b/c.yaml", "/x:3"])
        around = chance.choice(["at {}", "line\n{}", "'{}'", "{}: no such file", "({})", "file://{}", "x={},"])
        data = json.dumps({"error": around.format(above + below)}, ensure_ascii=False).encode()
        hidden = paths.for_caller(stranger, data)
        assert json.loads(hidden) == {"error": around.format(f"[{name}]{below}")}
        assert paths.for_caller(Caller("bob", frozenset({"run:files"})), data) == data
    for other in (f"{base}-other/x", f"/mnt{base}/x", "/srv"):
        assert paths.hidden(other.encode()) == other.encode()
