"""The official ACP SDK from npm as an editor that starts `callboard acp`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import trio
from interop.environments import HERE, INSTALLED, needs
from support.fake_models import FakeModels, Reply, Request
from support.mcp_entries import scripted
from support.messages import has_message
from support.waiting import PATIENCE

CALLBOARD = Path(sys.executable).parent / "callboard"
AGENT = """
name: clerk
global_tools: [fs_write]
can_ask_user: true
"""


def answers(path: Path, request: Request) -> Reply | str:
    """The model's side of the conversation."""
    if "slowly" in request.prompt:
        return Reply(text="slowly, slowly " * 50, piece=7, gap=0.2)
    write = ("fs_write", {"path": path.name, "contents": "x"})
    if "again" in request.prompt:
        return Reply(calls=[write])
    match len(request.results):
        case 0:
            return Reply(reasoning="Hm.", text="Let me see. ", calls=[("user__input", {"question": "Which colour?"})])
        case 1:
            return Reply(calls=[("tools__cwd", {}), write])
    return "Written."


@needs("node")
async def test_the_protocols_own_sdk_drives_prompts_permissions_cancels_and_old_sessions(
    tmp_path: Path, fake_model: FakeModels
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    config_dir = fake_model.config_dir(tmp_path / "config")
    config = json.loads((config_dir / "config.yaml").read_text())
    config["clients"][0]["models"] = [{"name": name, "max_input_tokens": 1000} for name in ("model", "other")]
    (config_dir / "config.yaml").write_text(json.dumps(config))
    home = config_dir / "agents" / "clerk"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text(AGENT)
    fake_model.answer_with(partial(answers, place / "a.txt"))
    server = scripted()
    command = [
        shutil.which("node") or "node", HERE / "clients/acp_client.mjs", INSTALLED / "node",
        CALLBOARD, config_dir, "clerk", place, server["command"], *server["args"],
    ]  # fmt: skip
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with trio.fail_after(PATIENCE):
        ended = await trio.run_process(
            [str(part) for part in command], capture_stdout=True, capture_stderr=True, check=False, env=environ
        )
    assert ended.returncode == 0, ended.stderr.decode()
    told: dict[str, Any] = json.loads(ended.stdout)
    assert told["complained"] == []
    assert told["hello"] == [1, "callboard", True]
    assert (told["first"], told["text"]) == ("end_turn", "Let me see. Written.")
    assert set(told["kinds"]) == {
        "agent_thought_chunk", "agent_message_chunk", "tool_call", "tool_call_update", "usage_update",
        "session_info_update", "notice",
    }  # fmt: skip
    ((severity, title),) = told["notices"]  # the client has the capability `session.notices`
    assert severity == "warning"
    assert has_message(title, "work.labels.flow.Flow._agreed.2", name="tools__cwd…")
    asked = {"title": "fs_write", "kinds": ["allow_once", "allow_always", "allow_always", "reject_once"]}
    assert told["permissions"] == [asked]
    assert (place / "a.txt").read_text() == "x"
    assert told["forms"] == ["Which colour?"]
    assert told["usage"] == [[15, 1000]] * 3
    assert told["titles"] == ["write it"]
    assert (told["cancelled"], told["dismissed"]) == ("cancelled", "cancelled")
    mode, kinds, words = told["loaded"]
    assert (mode, words) == ("ask", "write itgo slowlywrite again")
    assert set(kinds) == {"user_message_chunk", "agent_message_chunk", "tool_call", "tool_call_update"}
    assert told["resumed"] == 0
    assert told["listed"] == [[True, True]]
    assert (told["model"], told["refused"], told["left"]) == ("fake:other", -32004, 0)
    assert told["exit"] == 0
    said = [message for request in fake_model.requests for message in request.json["messages"]]
    assert any(str(place) in str(message["content"]) for message in said if message["role"] == "tool")  # tools__cwd
    (pictured,) = [
        message["content"] for message in fake_model.requests[0].json["messages"] if message["role"] == "user"
    ]
    assert [part["type"] for part in pictured] == ["text", "image_url"]
