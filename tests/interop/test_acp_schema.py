"""Every kind of frame that our side of ACP says, read by the protocol's official JSON Schema of version 1."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from interop.acp_schema import Judge
from interop.environments import needs
from support.agent_runs import AgentRunner
from support.control_hub import ASKS, hub_of
from support.editors import Editor, editors
from support.fake_models import FakeModels, Reply

import callboard
from callboard.actors.front.control.hub import Hub
from callboard.protocol.control.caller import LOCAL

__all__ = ["editors"]

pytestmark = needs("node")

UPDATES = {
    "user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan",
    "usage_update", "current_mode_update", "config_option_update", "session_info_update", "notice",
}  # fmt: skip
MESSAGES = {
    "InitializeResponse", "NewSessionResponse", "LoadSessionResponse", "ResumeSessionResponse", "ListSessionsResponse",
    "PromptResponse", "SetSessionModeResponse", "SetSessionConfigOptionResponse", "CloseSessionResponse",
    "DeleteSessionResponse", "SessionNotification", "RequestPermissionRequest", "CreateElicitationRequest",
    "CancelRequestNotification", "Error",
}  # fmt: skip


@pytest.fixture
async def root(tmp_path: Path, fake_model: FakeModels) -> AsyncIterator[callboard.Root]:
    """A patient root that knows how much its model takes in."""
    config_dir = fake_model.config_dir(tmp_path / "config")
    config = json.loads((config_dir / "config.yaml").read_text())
    config["clients"][0]["models"] = [{"name": "model", "type": "chat", "max_input_tokens": 1000, "input_price": 1.0}]
    (config_dir / "config.yaml").write_text(json.dumps(config))
    async with callboard.Root(config_dir=config_dir, wait_for_front_end=True) as root:
        yield root


@pytest.fixture
async def hub(root: callboard.Root, tmp_path: Path) -> AsyncIterator[Hub]:
    """What runs the prompts."""
    async with hub_of(root, tmp_path / "state") as hub:
        yield hub


async def test_every_frame_is_as_the_official_schema_wants_it(
    editors: Callable[..., Editor], root: callboard.Root, hub: Hub, fake_model: FakeModels, tmp_path: Path
) -> None:
    agent_runner = AgentRunner(root.config_dir, fake_model, root)
    agent_runner.agent(ASKS, "asks")
    agent_runner.plain("global_tools: [fs_write]\nauto_continue: true", name="clerk")
    editor = editors("clerk")
    able = {"elicitation": {"form": {}}, "session": {"notices": {}}}
    await editor.call("initialize", protocolVersion=1, clientCapabilities=able)
    await editor.refused("authenticate", methodId="x")
    broken = {"name": "broken", "command": str(tmp_path / "nothing"), "args": [], "env": []}
    session = await editor.new(cwd=str(tmp_path), mcpServers=[broken])
    editor.answers["session/request_permission"] = lambda _: {"outcome": {"outcome": "selected", "optionId": "yes"}}
    write = ("fs_write", {"path": "a.txt", "contents": "x"})
    fake_model.script(
        Reply(reasoning="hm", text="Well.", calls=[("todo__add", {"task": "look"}), write]),
        Reply(calls=[("todo__done", {"id": 1})]),
        "Done.",
    )
    await editor.say(session, "go")
    await editor.call("session/set_mode", sessionId=session, modeId="yes")
    await editor.call("session/set_config_option", sessionId=session, configId="model", value="fake:model")

    graph = await editor.new("asks")
    editor.answers["elicitation/create"] = lambda _: None  # the person thinks
    prompt = await editor.speak(graph, "go")
    await editor.until(lambda: [each for each in editor.asked if each["method"] == "elicitation/create"])
    (question,) = hub.questions(LOCAL)
    await hub.answer(LOCAL, question.id, "it is me")  # somebody else is faster
    await editor.end(prompt, good=True)
    await editor.until(lambda: editor.withdrawn)
    assert editor.withdrawn == [editor.asked[-1]["id"]]

    await editor.call("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
    await editor.call("session/resume", sessionId=session, cwd=str(tmp_path), mcpServers=[])
    await editor.call("session/list")
    await editor.call("session/close", sessionId=session)
    await editor.call("session/delete", sessionId=session)
    assert editor.judge.wrong == []
    assert editor.judge.seen == UPDATES | MESSAGES


def test_the_schema_refuses_what_is_wrong() -> None:
    judge = Judge()
    update = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "x", "kind": "read"}
    judge.heard({"method": "session/update", "params": {"sessionId": "s", "update": update}})
    assert judge.wrong == []
    for wrong in ({"title": None}, {"kind": "gossip"}, {"sessionUpdate": "tool_cal"}, {"locations": ["a.txt"]}):
        judge.heard({"method": "session/update", "params": {"sessionId": "s", "update": {**update, **wrong}}})
        assert len(judge.wrong) >= 1, wrong
        judge.wrong.clear()
    judge.heard({"method": "session/updaet", "params": {}})
    judge.asked(1, "session/prompt")
    judge.heard({"id": 1, "result": {"stopReason": "tired"}})
    assert len(judge.wrong) == 2
