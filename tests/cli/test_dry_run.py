"""`--dry-run` and `dry_run: true`: nothing is sent to a model, and what would be sent is the reply."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fake_models import FakeModels
from support.messages import has_message

Callboard = Callable[..., "tuple[int, str, str]"]

GRAPH = """\
name: g
start: a
nodes:
  a: {type: llm, prompt: "write about {{initial_prompt}}", state_updates: {poem: "{{output}}"}, next: b}
  b:
    type: llm
    prompt: judge
    output_schema: {type: object, properties: {verdict: {enum: [good, bad]}, score: {type: integer}}}
    next: e
  e: {type: end, output: "{{poem}} {{verdict}} {{score}}"}
"""


def test_ask_prints_model_messages_and_tools_and_sends_nothing(callboard: Callboard, models: FakeModels) -> None:
    asked = ("ask", "What time is it?", "--tool", "get_current_time", "--system", "Be brief.", "--dry-run")
    code, out, _err = callboard(*asked)
    assert code == 0
    for piece in ("system:\nBe brief.", "user:\nWhat time is it?", "tools: get_current_time", "not sent to fake:model"):
        assert piece in out
    assert models.requests == []


def test_the_setting_does_what_the_flag_does(
    callboard: Callboard, models: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_DRY_RUN", "true")
    code, out, _err = callboard("ask", "-q", "hello")
    assert (code, "user:\nhello" in out) == (0, True)
    assert models.requests == []


def test_no_key_is_needed(callboard: Callboard, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CLAUDE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert callboard("ask", "-q", "hello", "-m", "claude:claude-haiku-4-5", "--dry-run")[0] == 0
    code, _out, err = callboard("ask", "-q", "hello", "-m", "cloude:x", "--dry-run")
    assert (code, has_message(err, "work.models.providers.unknown.4", model="cloude:x")) == (3, True)


def test_a_graph_goes_through_and_answers_of_a_shape_are_the_emptiest(
    callboard: Callboard, models: FakeModels, tmp_path: Path
) -> None:
    (tmp_path / "graph.yaml").write_text(GRAPH)
    code, out, err = callboard("run", str(tmp_path), "rain", "--dry-run", "-o", "json")
    outcome = json.loads(out)
    assert (code, outcome["status"]) == (0, "done")
    assert "user:\nwrite about rain" in outcome["output"]
    assert outcome["output"].endswith(" good 0")
    assert "user:\njudge" in err
    assert models.requests == []
