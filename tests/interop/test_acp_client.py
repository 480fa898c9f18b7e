"""`callboard acp`, driven by an ACP client library that nobody here wrote."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import trio
from interop.environments import HERE, INSTALLED, needs
from support.fake_models import FakeModels, Reply, Request
from support.waiting import PATIENCE

CALLBOARD = Path(sys.executable).parent / "callboard"
AGENT = """
name: clerk
global_tools: [fs_write]
auto_continue: true
can_ask_user: true
"""


def answers(path: Path, request: Request) -> Reply | str:
    """The model's side of the conversation."""
    done = len(request.results)
    if "slowly" in request.prompt:
        return Reply(text="slowly, slowly " * 50, piece=7, gap=0.2)
    if done == 0:
        calls = [("todo__init", {"goal": "write"}), ("todo__add", {"task": "write the file"})]
        return Reply(text="Let me see. ", calls=calls)
    if done == 2:
        return Reply(calls=[("user__input", {"question": "Which colour?"})])
    if done == 3:
        return Reply(calls=[("fs_write", {"path": str(path), "contents": "x"})])
    if done == 4:
        return Reply(calls=[("todo__done", {"id": 1})])
    return "Written."


@needs("control")
async def test_a_client_of_somebody_elses_drives_a_run_with_a_permission_a_form_and_a_cancel(
    tmp_path: Path, fake_model: FakeModels
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    config_dir = fake_model.config_dir(tmp_path / "config")
    home = config_dir / "agents" / "clerk"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text(AGENT)
    fake_model.answer_with(partial(answers, place / "a.txt"))
    command = [INSTALLED / "control/bin/python", HERE / "clients/acp_client.py", CALLBOARD, config_dir, "clerk", place]
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with trio.fail_after(PATIENCE):
        ended = await trio.run_process(
            [str(part) for part in command], capture_stdout=True, capture_stderr=True, check=False, env=environ
        )
    assert ended.returncode == 0, ended.stderr.decode()
    told: dict[str, Any] = json.loads(ended.stdout)
    assert (told["version"], told["name"], told["modes"]) == (1, "callboard", ["ask", "yes"])
    reason, kinds, text = told["first"]
    assert (reason, text) == ("end_turn", "Let me see. Written.")
    assert {"agent_message_chunk", "tool_call", "tool_call_update", "plan"} <= set(kinds)
    assert (place / "a.txt").read_text() == "x"
    (permission,) = told["permissions"]
    assert (permission["title"], permission["kinds"]) == (
        "fs_write",
        ["allow_once", "allow_always", "allow_always", "reject_once"],
    )
    assert told["asked"] == ["Which colour?"]
    assert [[item["status"] for item in plan] for plan in told["plan"]][-1] == ["completed"]
    assert told["cancelled"] == "cancelled"
    replayed, words = told["replayed"]
    assert words == "write itgo slowly"
    assert {"user_message_chunk", "agent_message_chunk", "tool_call", "tool_call_update"} <= set(replayed)
    assert told["listed"] == [True]
    assert (told["model"], told["refused"]) == ("fake:other", -32004)
    assert told["exit"] == 0
