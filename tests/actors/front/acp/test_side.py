"""ACP on a connection: sessions of the store, played as runs of the hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from support.agent_runs import AgentRunner
from support.editors import Editor, editor, editors
from support.fake_models import FakeModels, Reply
from support.messages import has_message

from callboard.actors.front.control.hub import Hub
from callboard.protocol.control.caller import LOCAL, Caller

__all__ = ["editor", "editors"]

Json = Any
ASKS_COLOUR = """
start: a
nodes:
  a: {type: input, question: "Which colour?", state_updates: {x: "{{input}}"}, next: b}
  b: {type: end, output: "so {{x}}"}
"""


async def test_it_says_who_it_is_and_what_it_can(editors: Callable[..., Editor]) -> None:
    hello = await editors().call("initialize", protocolVersion=7, clientCapabilities={"fs": {"readTextFile": True}})
    assert hello["protocolVersion"] == 1
    assert hello["agentCapabilities"]["loadSession"] is True
    assert set(hello["agentCapabilities"]["sessionCapabilities"]) == {
        "list", "resume", "close", "delete", "additionalDirectories",
    }  # fmt: skip
    assert (hello["agentInfo"]["name"], hello["authMethods"]) == ("callboard", [])
    assert await editors().refused("authenticate", methodId="x") == -32602


async def test_a_prompt_is_a_turn_of_a_session_and_is_kept_when_it_is_answered(editor: Editor, hub: Hub) -> None:
    session = await editor.new()
    assert await editor.say(session, "hello") == {"stopReason": "end_turn"}
    assert editor.text() == "ok"
    stored = await hub.root.sessions.get(None, session)
    assert [message["content"] for message in stored.session.messages] == ["hello", "ok"]
    assert (stored.agent, stored.session.title) == ("clerk", "hello")
    (run,) = hub.list(LOCAL)
    assert (run.session, run.status) == (session, "done")


async def test_files_and_links_of_the_prompt_come_along_as_words(editor: Editor, fake_model: FakeModels) -> None:
    session = await editor.new()
    blocks = [
        {"type": "text", "text": "see"},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "a ``` b"}},
        {"type": "resource_link", "name": "b", "uri": "file:///b.txt"},
    ]
    await editor.call("session/prompt", sessionId=session, prompt=blocks)
    assert fake_model.requests[-1].prompt == "see\n\nfile:///a.txt\n````\na ``` b\n````\n\n[b](file:///b.txt)"
    for bad in (
        {"type": "image", "mimeType": "image/png", "data": ""},
        {"type": "image", "mimeType": "image/png", "data": "no base64!"},
        {"type": "image", "mimeType": "text/html", "data": "aGk="},
        {"type": "audio", "mimeType": "audio/wav", "data": "aGk="},
        {"type": "resource", "resource": {"uri": "file:///a.zip", "mimeType": "application/zip", "blob": "aGk="}},
    ):
        assert await editor.refused("session/prompt", sessionId=session, prompt=[bad]) == -32602
    assert await editor.refused("session/prompt", sessionId=session, prompt=[]) == -32011


async def test_calls_thoughts_the_plan_and_usage_are_told(
    editor: Editor, agent_runner: AgentRunner, fake_model: FakeModels
) -> None:
    agent_runner.plain("global_tools: [fs_ls]\nauto_continue: true", name="planner")
    session = await editor.new("planner")
    fake_model.script(
        Reply(reasoning="hm", calls=[("todo__add", {"task": "look"}), ("todo__add", {"task": "tell"})]),
        Reply(calls=[("fs_ls", {"path": "/nowhere/at/all"}), ("todo__done", {"id": 1})]),
        Reply(calls=[("todo__done", {"id": "2"})]),
    )
    assert (await editor.say(session, "go"))["stopReason"] == "end_turn"
    assert editor.text("agent_thought_chunk") == "hm"
    plans = [[(item["content"], item["status"]) for item in each["entries"]] for each in editor.of("plan")]
    assert plans[-1] == [("look", "completed"), ("tell", "completed")]
    assert [("look", "completed"), ("tell", "in_progress")] in plans
    calls = {each["toolCallId"]: each for each in editor.of("tool_call")}
    ended = {each["toolCallId"]: each for each in editor.of("tool_call_update")}
    assert set(calls) == set(ended)
    (listing,) = [id for id, each in calls.items() if each["title"] == "fs_ls"]
    assert (calls[listing]["kind"], calls[listing]["rawInput"]) == ("read", {"path": "/nowhere/at/all"})
    assert ended[listing]["status"] == "failed"


@pytest.mark.parametrize(("chosen", "written"), [("yes", True), ("no", False)])
async def test_a_permission_is_asked_of_the_client(
    editor: Editor, fake_model: FakeModels, tmp_path: Path, chosen: str, written: bool
) -> None:
    session = await editor.new(cwd=str(tmp_path))
    editor.answers["session/request_permission"] = lambda _: {"outcome": {"outcome": "selected", "optionId": chosen}}
    fake_model.script(Reply(calls=[("fs_write", {"path": "a.txt", "contents": "x"})]), "done")
    assert (await editor.say(session, "go"))["stopReason"] == "end_turn"
    assert (tmp_path / "a.txt").exists() is written
    (asked,) = editor.asked
    assert asked["params"]["sessionId"] == session
    assert [option["kind"] for option in asked["params"]["options"]] == [
        "allow_once",
        "allow_always",
        "allow_always",
        "reject_once",
    ]
    assert asked["params"]["toolCall"]["toolCallId"] in {each["toolCallId"] for each in editor.of("tool_call")}


async def test_the_mode_yes_asks_for_nothing(editor: Editor, fake_model: FakeModels, tmp_path: Path) -> None:
    session = await editor.new(cwd=str(tmp_path))
    await editor.call("session/set_mode", sessionId=session, modeId="yes")
    assert editor.of("current_mode_update")[0]["currentModeId"] == "yes"
    fake_model.script(Reply(calls=[("fs_write", {"path": "a.txt", "contents": "x"})]), "done")
    await editor.say(session, "go")
    assert (tmp_path / "a.txt").read_text() == "x"
    assert editor.asked == []
    assert await editor.refused("session/set_mode", sessionId=session, modeId="sudo") == -32011


async def test_the_mode_is_an_option_as_well(editor: Editor) -> None:
    made = await editor.call("session/new", cwd="/", mcpServers=[])
    session = made["sessionId"]
    assert [option["id"] for option in made["configOptions"]] == ["model", "mode"]
    set_option = {"sessionId": session, "configId": "mode"}
    chosen = await editor.call("session/set_config_option", **set_option, value="yes")
    assert chosen["configOptions"][1]["currentValue"] == "yes"
    assert editor.of("current_mode_update")[0]["currentModeId"] == "yes"
    await editor.call("session/set_mode", sessionId=session, modeId="ask")
    assert editor.of("config_option_update")[-1]["configOptions"][1]["currentValue"] == "ask"
    assert await editor.refused("session/set_config_option", **set_option, value="sudo") == -32011


async def test_a_prompt_without_an_answer_is_a_refusal_or_an_error_with_its_code(
    editor: Editor, fake_model: FakeModels
) -> None:
    def ends(reason: str) -> Reply:
        choice = {"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": reason}
        return Reply(raw=json.dumps({"choices": [choice]}).encode())

    session = await editor.new()
    fake_model.answer_with(lambda _: ends("content_filter"))
    assert await editor.say(session, "go") == {"stopReason": "refusal"}
    assert "content_filter" in editor.of("agent_message_chunk")[-1]["content"]["text"]
    fake_model.answer_with(lambda _: ends("stop"))
    words = [{"type": "text", "text": "go"}]
    error = (await editor.end(await editor.begin("session/prompt", sessionId=session, prompt=words)))["error"]
    assert (error["code"], error["data"]["code"]) == (-32013, "empty_reply")


async def test_other_questions_are_forms_and_a_graphs_output_is_what_it_says(
    editor: Editor, agent_runner: AgentRunner
) -> None:
    agent_runner.agent(ASKS_COLOUR, "colours")
    session = await editor.new("colours")
    editor.answers["elicitation/create"] = lambda _: {"action": "accept", "content": {"answer": "blue"}}
    assert (await editor.say(session, "go"))["stopReason"] == "end_turn"
    assert editor.text() == "so blue"
    form = editor.asked[0]["params"]
    assert (form["mode"], form["message"].splitlines()[0]) == ("form", "Which colour?")
    assert form["requestedSchema"]["properties"]["answer"]["type"] == "string"
    assert [each["title"] for each in editor.of("tool_call")] == ["a (input)", "b (end)"]


async def test_what_the_client_can_not_show_ends_the_prompt_and_says_so(
    editor: Editor, agent_runner: AgentRunner
) -> None:
    agent_runner.agent(ASKS_COLOUR, "colours")
    session = await editor.new("colours")
    assert await editor.say(session, "go") == {"stopReason": "cancelled"}
    assert has_message(editor.text(), "front.acp.agent.ask.2", question="Which colour?")


async def test_another_front_end_may_be_the_first_to_answer(
    editor: Editor, agent_runner: AgentRunner, hub: Hub
) -> None:
    agent_runner.agent(ASKS_COLOUR, "colours")
    session = await editor.new("colours")
    editor.answers["elicitation/create"] = lambda _: None  # the person thinks
    prompt = await editor.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}])
    await editor.until(lambda: editor.asked)
    (question,) = hub.questions(LOCAL)
    assert await hub.answer(LOCAL, question.id, "red")
    assert (await editor.end(prompt))["result"] == {"stopReason": "end_turn"}
    assert editor.text() == "so red"


async def test_a_prompt_that_is_cancelled_is_answered_as_such_and_what_was_said_is_kept(
    editor: Editor, fake_model: FakeModels, hub: Hub
) -> None:
    session = await editor.new()
    fake_model.answer_with(lambda _: Reply(text="slowly " * 100, piece=7, gap=0.05))
    prompt = await editor.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}])
    await editor.until(lambda: len(editor.updates) > 2)
    busy = await editor.refused("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "more"}])
    assert busy == -32009
    await editor.tell("session/cancel", sessionId=session)
    assert (await editor.end(prompt))["result"] == {"stopReason": "cancelled"}
    stored = await hub.root.sessions.get(None, session)
    assert [message["role"] for message in stored.session.messages] == ["user", "assistant"]
    assert stored.session.messages[1]["content"].startswith("slowly")
    assert [run.status for run in hub.list(LOCAL)] == ["cancelled"]
    fake_model.answer_with(lambda _: "fine")
    assert await editor.say(session, "again") == {"stopReason": "end_turn"}


async def test_a_request_that_is_cancelled_is_answered_with_its_number_and_ends_the_run(
    editor: Editor, fake_model: FakeModels, hub: Hub
) -> None:
    session = await editor.new()
    fake_model.answer_with(lambda _: Reply(hold=trio.Event()))
    prompt = await editor.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}])
    await fake_model.arrived(1)
    await editor.tell("$/cancel_request", requestId=prompt)
    assert (await editor.end(prompt))["error"]["code"] == -32800
    while hub.under_way:
        await trio.sleep(0.005)
    assert [run.status for run in hub.list(LOCAL)] == ["cancelled"]


async def test_a_run_that_fails_is_an_error_and_one_at_its_bound_a_reason(
    editor: Editor, agent_runner: AgentRunner, fake_model: FakeModels
) -> None:
    session = await editor.new()
    fake_model.script(Reply(status=400, error="no"))
    words = [{"type": "text", "text": "go"}]
    assert await editor.refused("session/prompt", sessionId=session, prompt=words) == -32013
    agent_runner.plain("max_turns: 1\nglobal_tools: [fs_ls]", name="short")
    short = await editor.new("short")
    fake_model.script(Reply(calls=[("fs_ls", {"path": "."})]))
    assert await editor.say(short, "go") == {"stopReason": "max_turn_requests"}


async def test_an_old_session_is_listed_and_replayed_when_it_is_loaded(
    editor: Editor, editors: Callable[..., Editor], fake_model: FakeModels
) -> None:
    session = await editor.new()
    fake_model.script(Reply(text="Looking.", calls=[("fs_ls", {"path": "."})]), "Done.")
    await editor.say(session, "go")
    other = editors()
    (listed,) = (await other.call("session/list"))["sessions"]
    assert (listed["sessionId"], listed["cwd"], listed["title"]) == (session, "/tmp", "go")
    assert (await other.call("session/list", cwd="/elsewhere"))["sessions"] == []
    state = await other.call("session/load", sessionId=session, cwd="/tmp", mcpServers=[])
    assert state["modes"]["currentModeId"] == "ask"
    assert [each["sessionUpdate"] for each in other.updates] == [
        "user_message_chunk", "agent_message_chunk", "tool_call", "tool_call_update", "agent_message_chunk",
    ]  # fmt: skip
    await other.say(session, "again")
    assert [message["role"] for message in fake_model.requests[-1].json["messages"]][-2:] == ["assistant", "user"]
    third = editors()
    await third.call("session/resume", sessionId=session, cwd="/tmp", mcpServers=[])
    assert third.updates == []


async def test_sessions_are_closed_and_deleted(editor: Editor) -> None:
    session = await editor.new()
    words = [{"type": "text", "text": "x"}]
    await editor.call("session/close", sessionId=session)
    assert await editor.refused("session/prompt", sessionId=session, prompt=words) == -32004
    assert await editor.refused("session/close", sessionId=session) == -32004
    await editor.call("session/delete", sessionId=session)
    assert await editor.refused("session/load", sessionId=session, cwd="/tmp", mcpServers=[]) == -32004
    assert await editor.refused("session/delete", sessionId="../../etc") == -32004


async def test_the_model_is_an_option(editor: Editor, fake_model: FakeModels) -> None:
    session = await editor.new()
    chosen = await editor.call("session/set_config_option", sessionId=session, configId="model", value="fake:other")
    option, _ = chosen["configOptions"]
    assert (option["id"], option["category"], option["currentValue"]) == ("model", "model", "fake:other")
    await editor.say(session, "hi")
    assert fake_model.requests[-1].json["model"] == "other"
    for config, value, number in (("model", "nobody:x", -32012), ("model", 3, -32011), ("mood", "x", -32011)):
        refused = await editor.refused("session/set_config_option", sessionId=session, configId=config, value=value)
        assert refused == number


async def test_what_can_not_be_is_refused_when_the_session_is_made(editor: Editor) -> None:
    assert await editor.refused("session/new", cwd="not/absolute", mcpServers=[]) == -32011
    meta = {"callboard": {"agent": "nobody-of-this-name"}}
    assert await editor.refused("session/new", cwd="/tmp", mcpServers=[], _meta=meta) == -32011
    assert await editor.refused("session/new", mcpServers=[]) == -32602


async def test_scopes_and_owners_hold_here_as_well(editors: Callable[..., Editor], agent_runner: AgentRunner) -> None:
    agent_runner.plain("", name="clerk")
    rights = frozenset({"run:agents", "read:runs", "write:runs", "read:sessions", "write:sessions"})
    alice, bob = editors("clerk", Caller("alice", rights)), editors("clerk", Caller("bob", rights))
    reader = editors("clerk", Caller("carol", frozenset({"read:sessions"})))
    session = await alice.new()
    assert await alice.say(session, "hi") == {"stopReason": "end_turn"}
    assert (await bob.call("session/list"))["sessions"] == []
    assert await bob.refused("session/load", sessionId=session, cwd="/tmp", mcpServers=[]) == -32003
    assert await bob.refused("session/delete", sessionId=session) == -32003
    assert await reader.refused("session/new", cwd="/tmp", mcpServers=[]) == -32003
    meta = {"callboard": {"agent": "/etc/passwd.yaml"}}
    assert await alice.refused("session/new", cwd="/tmp", mcpServers=[], _meta=meta) == -32003
    assert await alice.refused("session/set_mode", sessionId=session, modeId="yes") == -32003


async def test_a_run_that_went_on_over_a_failure_is_refused_with_its_cause_behind_its_output(
    editor: Editor, agent_runner: AgentRunner, fake_model: FakeModels
) -> None:
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: llm, prompt: p, max_attempts: 1, state_updates: {x: "{{output}}"}, next: b}
          b: {type: end, output: "so {{x}}"}
        """,
        name="haiku",
    )
    fake_model.answer_with(lambda _: Reply(status=404, error="no such model"))
    session = await editor.new("haiku")
    words = [{"type": "text", "text": "frogs"}]
    assert await editor.refused("session/prompt", sessionId=session, prompt=words) == -32013
    assert editor.text() == "so LLM node failed: fake:model: no such model (HTTP 404)"
