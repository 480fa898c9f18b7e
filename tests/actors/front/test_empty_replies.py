"""A reply with nothing in it, in every front end: never a success, and each says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.fake_models import FakeModels, Reply

import callboard

ENDS = {
    "empty": ("stop", "empty_reply"),
    "filter": ("content_filter", "reply_filtered"),
    "only a thought": ("stop", "empty_reply"),
}


def raw(reason: str, **message: Any) -> Reply:
    """A whole answer that ends for this reason."""
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": reason}
    return Reply(raw=json.dumps({"choices": [choice]}).encode())


@pytest.fixture(params=ENDS)
def ended(request: pytest.FixtureRequest, fake_model: FakeModels, tmp_path: Path) -> tuple[Path, str]:
    """A configuration whose model says nothing, and the code of the error that it is."""
    reason, code = ENDS[request.param]
    more = {"reasoning_content": "So seven."} if request.param == "only a thought" else {}
    fake_model.answer_with(lambda _: raw(reason, **more))
    (tmp_path / "config.yaml").write_text(
        f"model: lab:m\nclients:\n- {{type: openai-compatible, name: lab, api_base: '{fake_model.openai_base}'}}\n"
    )
    for name, text in {
        "clerk": "name: clerk\ninstructions: Help.\n",
        "boss": "name: boss\ninstructions: Help.\ncan_spawn_agents: true\n",
    }.items():
        (tmp_path / "agents" / name).mkdir(parents=True)
        (tmp_path / "agents" / name / "config.yaml").write_text(text)
    return tmp_path, code


WORKFLOW = """
graph:
  id: g
  nodes:
    - {id: A, type: agent, config: {provider: openai, base_url: 'BASE', api_key: k, name: m, role: Help.}}
  edges: []
"""
GRAPHS = {
    "llm": "name: g\nstart: a\nnodes:\n  a: {type: llm, prompt: x, next: d}\n  d: {type: end, output: ok}\n",
    "agent": "name: g\nstart: a\nnodes:\n  a: {type: agent, agent: clerk, prompt: x, next: d}\n"
    "  d: {type: end, output: ok}\n",
    "workflow": WORKFLOW,
}


@pytest.mark.parametrize("kind", ["clerk", *GRAPHS])
async def test_a_run_of_any_kind_has_failed(fake_model: FakeModels, ended: tuple[Path, str], kind: str) -> None:
    home, code = ended
    target = kind
    if kind in GRAPHS:
        target = str(home / "g.yaml")
        Path(target).write_text(GRAPHS[kind].replace("BASE", fake_model.openai_base))
    outcome = await callboard.run(target, "hi", config_dir=home)
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == code or code in [failure.code for failure in outcome.failures]


async def test_a_turn_after_a_call_that_says_nothing_has_failed(
    fake_model: FakeModels, ended: tuple[Path, str]
) -> None:
    home, code = ended
    call = {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    reason = next(reason for reason, each in ENDS.values() if each == code)
    fake_model.script(raw("tool_calls", tool_calls=[call]), *[raw(reason)] * 4)

    @callboard.tool(effect="read")
    def add(a: int) -> int:
        """Add one."""
        return a + 1

    agent = callboard.Agent(name="x", instructions="Help.", can_ask_user=False)
    outcome = await callboard.run(agent, "hi", config_dir=home, tools=[add])
    assert (outcome.status, outcome.error and outcome.error.code) == ("failed", code)


async def test_a_parent_reads_that_its_child_has_failed(fake_model: FakeModels, ended: tuple[Path, str]) -> None:
    home, code = ended
    reason = next(reason for reason, each in ENDS.values() if each == code)

    def calling(name: str, **arguments: str) -> Reply:
        function = {"name": name, "arguments": json.dumps(arguments)}
        return raw("tool_calls", tool_calls=[{"id": name, "type": "function", "function": function}])

    def answer(request: Any) -> Reply:
        body = request.json
        if not any(tool["function"]["name"] == "agent__spawn" for tool in body.get("tools", ())):
            return raw(reason)
        said = [each["content"] for each in body["messages"] if each["role"] == "tool"]
        if not said:
            return calling("agent__spawn", agent="clerk", prompt="x")
        if len(said) == 1:
            return calling("agent__collect", id=json.loads(said[0])["id"])
        return raw("stop", content=said[1])

    fake_model.answer_with(answer)
    outcome = await callboard.run("boss", "hi", config_dir=home, yes=True)
    assert "failed" in outcome.output or "error" in outcome.output
    (child,) = outcome.children
    assert child.status == "failed"
    assert child.error
