"""What an editor brings along: the directory to work in, more of them, MCP servers, images; and what it is told."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from support.agent_runs import AgentRunner
from support.editors import Editor, editor, editors
from support.fake_models import FakeModels, Reply
from support.mcp_entries import _own_cache, scripted
from support.messages import has_message

import callboard
from callboard.actors.front.control.hub import Hub
from callboard.protocol.control.caller import LOCAL, Caller

__all__ = ["_own_cache", "editor", "editors"]

Json = Any
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n of a sort").decode()
WHERE = '# @cmd Where am I?\nwhere() { pwd >> "$LLM_OUTPUT"; }\n'
USAGE, DENIED = -32011, -32003


def named(name: str, **more: Json) -> Json:
    """A program as `mcpServers` has it."""
    entry = scripted(**more)
    return {"name": name, "command": entry["command"], "args": entry["args"], "env": entry.get("env", [])}


def results(model: FakeModels) -> list[str]:
    """What the tools of the last turn have said."""
    return [str(message["content"]) for message in model.requests[-1].json["messages"] if message["role"] == "tool"]


async def test_the_run_works_in_the_directory_of_the_session(
    editor: Editor, agent_runner: AgentRunner, fake_model: FakeModels, tmp_path: Path
) -> None:
    home = agent_runner.plain("instructions: 'at {{__cwd__}}'\nglobal_tools: [fs_cat, execute_command]", name="worker")
    (home / "tools.sh").write_text(WHERE)
    place = tmp_path / "project"
    place.mkdir()
    (place / "a.txt").write_text("of the project")
    session = await editor.new("worker", cwd=str(place))
    await editor.call("session/set_mode", sessionId=session, modeId="yes")
    calls = [("fs_cat", {"path": "a.txt"}), ("where", {}), ("execute_command", {"command": "pwd"})]
    fake_model.script(Reply(calls=calls), "done")
    await editor.say(session, "go")
    said = results(fake_model)
    assert "of the project" in said[0]
    assert str(place) in said[1]
    assert str(place) in said[2]
    assert fake_model.requests[0].system.startswith(f"at {place}")
    located = [each["locations"] for each in editor.of("tool_call") if "locations" in each]
    assert located == [[{"path": str(place / "a.txt")}]]


async def test_scripts_of_a_graph_work_there_as_well(editor: Editor, agent_runner: AgentRunner, tmp_path: Path) -> None:
    graph = """
    start: a
    nodes:
      a: {type: script, script: a.sh, state_updates: {at: "{{at}}"}, next: b}
      b: {type: end, output: "at {{at}}"}
    """
    agent_runner.agent(graph, "places", a='echo "{\\"at\\": \\"$PWD\\"}"')
    session = await editor.new("places", cwd=str(tmp_path))
    await editor.say(session, "go")
    assert editor.text() == f"at {tmp_path}"


async def test_permissions_are_judged_in_the_directory_of_the_session(
    editor: Editor, agent_runner: AgentRunner, fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = "deny: ['secrets/*', .env]"
    rules = f"permissions: {{'fs_*': {{{denied}}}, fs_write: {{allow: 'src/*', ask: '*', {denied}}}}}"
    agent_runner.plain(f"global_tools: [fs]\n{rules}", name="worker")
    place, alias, elsewhere = tmp_path / "project", tmp_path / "alias", tmp_path / "elsewhere"
    for name in ("secrets/key", ".env", "src/a"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("SESAME" if name != "src/a" else "code")
    (place / "src" / "l").symlink_to("../secrets")
    (place / "to-env").symlink_to(".env")
    alias.symlink_to(place)
    elsewhere.mkdir()
    reads = [
        *("secrets/key", f"{place}/secrets/key", f"{alias}/secrets/key", "src/l/key", f"{place}/src/l/../../.env"),
        *("./src/../.env", "to-env", f"{elsewhere}/../project/.env"),
    ]
    calls = [
        *(("fs_cat", {"path": path}) for path in reads),
        *((name, {"pattern": ".", "path": path}) for name in ("fs_grep", "fs_glob") for path in (".", "src/l")),
        *(("fs_write", {"path": path, "contents": "x"}) for path in ("src/l/new", f"{alias}/.env", "secrets/new")),
    ]
    for stands in (elsewhere, place, place / "secrets"):
        monkeypatch.chdir(stands)
        for cwd in (place, alias):
            session = await editor.new("worker", cwd=str(cwd))
            await editor.call("session/set_mode", sessionId=session, modeId="yes")
            fake_model.script(Reply(calls=calls), Reply(calls=[("fs_cat", {"path": f"{alias}/src/a"})]), "done")
            await editor.say(session, "go")
            *said, code = results(fake_model)
            assert len(said) == len(calls)
            assert "SESAME" not in "".join(said)
            assert ["permissions deny" in text for text in said] == [True] * 8 + [False, True] * 2 + [True] * 3
            assert code == "code"
    assert not list(place.rglob("new"))
    assert (place / ".env").read_text() == "SESAME"


async def test_further_directories_may_be_read(editor: Editor, fake_model: FakeModels, tmp_path: Path) -> None:
    here, there, elsewhere = (tmp_path / name for name in ("here", "there", "elsewhere"))
    for place in (here, there, elsewhere):
        place.mkdir()
    session = await editor.new(cwd=str(here), additionalDirectories=[str(there)])
    fake_model.script(Reply(calls=[("fs_ls", {"path": str(path)}) for path in (there, elsewhere)]), "done")
    await editor.say(session, "go")
    paths = {each["toolCallId"]: each["rawInput"]["path"] for each in editor.of("tool_call")}
    ended = {paths[each["toolCallId"]]: each["status"] for each in editor.of("tool_call_update")}
    assert ended == {str(there): "completed", str(elsewhere): "failed"}


async def test_a_directory_that_is_not_there_is_refused(editor: Editor, tmp_path: Path) -> None:
    for cwd in ("here", "", str(tmp_path / "nowhere"), __file__, "/tmp/\0"):
        assert await editor.refused("session/new", cwd=cwd, mcpServers=[]) == USAGE
    more = {"additionalDirectories": [str(tmp_path / "nowhere")]}
    assert await editor.refused("session/new", cwd=str(tmp_path), mcpServers=[], **more) == USAGE
    session = await editor.new(cwd=str(tmp_path))
    assert await editor.refused("session/load", sessionId=session, cwd="here", mcpServers=[]) == USAGE


async def test_servers_of_the_client_serve_every_prompt_and_work_in_its_directory(
    editor: Editor, fake_model: FakeModels, tmp_path: Path
) -> None:
    env = [{"name": "COLOUR", "value": "blue"}]
    session = await editor.new(cwd=str(tmp_path), mcpServers=[named("my tools", env=env)])
    for _ in range(2):
        calls = [("my-tools__cwd", {}), ("my-tools__env", {"name": "COLOUR"})]
        fake_model.script(Reply(calls=calls), "done")
        assert await editor.say(session, "go") == {"stopReason": "end_turn"}
        where, colour = results(fake_model)[-2:]
        assert str(tmp_path) in where
        assert "blue" in colour
    assert "fs_write" in fake_model.requests[-1].offered  # its own tools are there as well
    resumed = await editor.call("session/resume", sessionId=session, cwd=str(tmp_path), mcpServers=[])
    assert resumed["modes"]["currentModeId"] == "ask"
    await editor.say(session, "again")
    assert not [name for name in fake_model.requests[-1].offered if name.startswith("my-tools")]


async def test_servers_that_can_not_be_are_refused_by_name(
    editor: Editor, agent_runner: AgentRunner, tmp_path: Path
) -> None:
    async def refused(*servers: Json, **more: Json) -> str:
        id = await editor.begin("session/new", **{"cwd": str(tmp_path), "mcpServers": list(servers), **more})
        error = (await editor.end(id))["error"]
        assert error["code"] == USAGE
        return str(error["message"])

    assert has_message(
        await refused({"name": "x", "command": "", "args": [], "env": []}), "front.acp.agent._server", where="…'x'"
    )
    assert has_message(
        await refused({"type": "http", "name": "x", "url": "file:///x", "headers": []}), "front.acp.agent._server.3"
    )
    for header in ({"name": "a b", "value": "x"}, {"name": "a", "value": "x\r\ny: z"}):
        told = await refused({"type": "sse", "name": "x", "url": "http://127.0.0.1:1", "headers": [header]})
        assert "header" in told
    assert "NUL" in await refused({"name": "x", "command": "x\0", "args": [], "env": []})
    assert has_message(
        await refused(*[named(f"s{number}") for number in range(51)]),
        "front.acp.agent.workspace_of.3",
        MOST_SERVERS=50,
    )
    agent_runner.agent("start: a\nnodes:\n  a: {type: end, output: x}", "flat")
    meta = {"callboard": {"agent": "flat"}}
    assert has_message(await refused(named("x"), _meta=meta), "front.acp.agent.AcpAgent._checked", agent="flat")
    strange = {"type": "carrier pigeon", "name": "x"}
    assert await editor.refused("session/new", cwd=str(tmp_path), mcpServers=[strange]) == -32602


async def test_a_server_that_does_not_start_costs_its_own_tools_only(
    editors: Callable[..., Editor], agent_runner: AgentRunner, fake_model: FakeModels, tmp_path: Path
) -> None:
    agent_runner.plain("", name="clerk")
    editor = editors("clerk")
    await editor.call("initialize", protocolVersion=1, clientCapabilities={"session": {"notices": {}}})
    broken = {"name": "broken", "command": str(tmp_path / "nothing"), "args": [], "env": []}
    session = await editor.new(cwd=str(tmp_path), mcpServers=[broken])
    assert await editor.say(session, "go") == {"stopReason": "end_turn"}
    (notice,) = editor.of("notice")
    assert notice["severity"] == "warning"
    assert "broken" in notice["title"]
    assert fake_model.requests[-1].offered == [] or "broken" not in str(fake_model.requests[-1].offered)


async def test_whoever_may_not_name_files_brings_nothing(
    editors: Callable[..., Editor], agent_runner: AgentRunner, fake_model: FakeModels, tmp_path: Path
) -> None:
    agent_runner.plain("global_tools: [fs_ls]", name="clerk")
    rights = frozenset({"run:agents", "read:runs", "write:runs", "read:sessions", "write:sessions"})
    editor = editors("clerk", Caller("alice", rights))
    for more in ({"mcpServers": [named("x")]}, {"mcpServers": [], "additionalDirectories": ["/"]}):
        assert await editor.refused("session/new", cwd="/", **more) == DENIED
    session = await editor.new(cwd="/of/another/machine")
    fake_model.script(Reply(calls=[("fs_ls", {"path": "/"})]), "done")
    await editor.say(session, "go")
    assert [each["status"] for each in editor.of("tool_call_update")] == ["failed"]  # our directory, not theirs


async def test_images_reach_the_model_and_are_replayed(
    editor: Editor, editors: Callable[..., Editor], agent_runner: AgentRunner, fake_model: FakeModels
) -> None:
    session = await editor.new()
    image = {"type": "image", "mimeType": "image/png", "data": PIXEL}
    file = {"type": "resource", "resource": {"uri": "file:///b.png", "mimeType": "image/png", "blob": PIXEL}}
    await editor.call(
        "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "what is it?"}, image, file]
    )
    content = fake_model.requests[-1].json["messages"][-1]["content"]
    assert [part["type"] for part in content] == ["text", "image_url", "image_url"]
    assert content[1]["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"
    assert await editor.call("session/prompt", sessionId=session, prompt=[image]) == {"stopReason": "end_turn"}
    other = editors()
    await other.call("session/load", sessionId=session, cwd="/tmp", mcpServers=[])
    said = [each["content"] for each in other.of("user_message_chunk")]
    assert [block["type"] for block in said] == ["text", "image", "image", "image"]
    assert said[1]["data"] == PIXEL
    agent_runner.agent("start: a\nnodes:\n  a: {type: end, output: x}", "flat")
    flat = await editor.new("flat")
    assert await editor.refused("session/prompt", sessionId=flat, prompt=[image]) == USAGE


async def test_the_first_prompt_gives_a_title_which_is_told_once(editor: Editor) -> None:
    session = await editor.new()
    await editor.say(session, "what is new?")
    await editor.say(session, "and now?")
    assert [each["title"] for each in editor.of("session_info_update")] == ["what is new?"]


async def test_pieces_of_one_message_have_its_id(editor: Editor, fake_model: FakeModels) -> None:
    session = await editor.new()
    fake_model.script(Reply(reasoning="hm hm", text="Let me see.", piece=3, calls=[("fs_ls", {"path": "."})]), "Done.")
    await editor.say(session, "go")
    ids: dict[str, str] = {}
    for each in editor.updates:
        if each["sessionUpdate"] in ("agent_message_chunk", "agent_thought_chunk"):
            ids[each["messageId"]] = ids.get(each["messageId"], "") + each["content"]["text"]
    assert list(ids.values()) == ["hm hm", "Let me see.", "Done."]


@pytest.fixture
async def root(tmp_path: Path, fake_model: FakeModels) -> AsyncIterator[callboard.Root]:
    """As for all of them, but it is known how much the model takes in, and what it costs."""
    config_dir = fake_model.config_dir(tmp_path / "config")
    config = json.loads((config_dir / "config.yaml").read_text())
    model = {"name": "model", "type": "chat", "max_input_tokens": 1000, "input_price": 1e6, "output_price": 0}
    config["clients"][0]["models"] = [model]
    (config_dir / "config.yaml").write_text(json.dumps(config))
    async with callboard.Root(config_dir=config_dir, wait_for_front_end=True) as root:
        yield root


async def test_how_full_the_window_is_and_what_it_has_cost_is_told(editor: Editor, hub: Hub) -> None:
    session = await editor.new()
    for _ in range(2):
        await editor.say(session, "go")
    told = editor.of("usage_update")
    assert [(usage["used"], usage["size"]) for usage in told] == [(15, 1000)] * 2
    costs = [run.cost for run in hub.list(LOCAL)]
    assert [usage["cost"] for usage in told] == [
        {"amount": pytest.approx(costs[0]), "currency": "USD"},
        {"amount": pytest.approx(sum(costs)), "currency": "USD"},  # of the whole session
    ]
    assert costs[0] > 0
