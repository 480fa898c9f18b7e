"""`callboard run`: what comes out where, and with which exit code, whatever becomes of the run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.fake_models import FakeModels, Reply, Request
from support.messages import has_message

Callboard = Callable[..., "tuple[int, str, str]"]

ASK = """
name: ask
start: who
nodes:
  who:
    type: input
    question: Who?
    state_updates: {who: "{{input}}"}
    next: gate
  gate:
    type: approval
    question: "Greet {{who}}?"
    options: ["yes", "no"]
    routes: {"yes": end, "no": end}
    on_other: end
    state_updates: {choice: "{{choice}}"}
  end: {type: end, output: "{{who}}: {{choice}}"}
"""

LLM = """
name: talk
initial_state: {tone: "kind"}
start: say
nodes:
  say:
    {type: llm, prompt: "{{tone}} {{initial_prompt}}", state_updates: {said: "{{output}}"}, fallback: lost, next: end}
  end: {type: end, output: "{{said}}"}
  lost: {type: end, output: "lost: {{said}}"}
"""


@pytest.fixture
def ask(tmp_path: Path) -> str:
    """A graph that asks twice and needs no model."""
    return written(tmp_path, ASK)


@pytest.fixture
def talk(tmp_path: Path, models: FakeModels) -> str:
    """A graph that asks a model once."""
    return written(tmp_path, LLM)


def written(folder: Path, text: str) -> str:
    file = folder / "graph.yaml"
    file.write_text(text)
    return str(file)


def last(out: str) -> Any:
    return json.loads(out.splitlines()[-1])


def test_the_result_is_on_stdout_and_the_story_on_stderr(
    callboard: Callboard, talk: str, models: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CALLBOARD_SANDBOX")
    models.script("hello \x1b[31m")
    code, out, err = callboard("run", talk, "world")
    assert (code, out) == (0, "hello \x1b[31m\n")
    assert models.requests[0].prompt == "kind world"
    story = err.splitlines()
    assert story[0].endswith("graph: talk (start: say)")
    assert "say (llm) start" in story[1]
    assert story[-1].split(",")[1:] == [" 10 tokens in", " 5 out", " unpriced"]


def test_that_there_is_no_sandbox_is_the_first_line(callboard: Callboard, talk: str) -> None:
    _, _, err = callboard("run", "--sandbox", "off", talk, "world")
    assert err.splitlines()[0] == "▸ sandbox: off"


def test_quiet_says_nothing_at_all(callboard: Callboard, talk: str) -> None:
    assert callboard("run", "-q", talk, "world") == (0, "ok\n", "")


def test_verbose_tells_about_model_calls_and_times(callboard: Callboard, talk: str) -> None:
    err = callboard("run", "-v", talk, "world")[2]
    assert has_message(err, "cli.render.narration.Narrator._llm_request.2", model="fake:model messages=1")
    assert has_message(err, "cli.render.narration.Narrator._graph_finished")


def test_json_is_one_object_with_everything(callboard: Callboard, talk: str) -> None:
    code, out, _err = callboard("run", talk, "world", "-o", "json")
    outcome = json.loads(out)
    assert (code, out.count("\n")) == (0, 1)
    assert outcome["status"] == "done"
    assert outcome["order"] == ["say", "end"]
    assert outcome["state"]["said"] == "ok"
    assert outcome["nodes"]["say"]["visits"] == 1
    assert outcome["usage"]["fake:model"] == {"input_tokens": 10, "output_tokens": 5, "cost": 0.0, "priced": False}
    assert outcome["error"] is None


def test_stream_json_is_gapless_and_ends_with_the_outcome(callboard: Callboard, talk: str) -> None:
    code, out, _err = callboard("run", talk, "world", "-o", "stream-json")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert (events[0]["kind"], events[-1]["kind"]) == ("run.started", "run.finished")
    assert events[-1]["data"]["outcome"]["output"] == "ok"


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_a_failed_run_tells_why_on_stderr_and_in_json(callboard: Callboard, tmp_path: Path, form: str) -> None:
    graph = written(tmp_path, ASK.replace("Greet {{who}}?", "{{nothing}}?"))
    code, out, err = callboard("run", graph, "-o", form, "--answer", "Ada")
    assert code == 1
    assert err.splitlines()[-1].startswith("callboard: ")
    assert has_message(err.splitlines()[-1], "engine.graph.templates._complaint", names="'nothing'")
    if form == "text":
        assert out == ""
        return
    outcome = last(out) if form == "json" else last(out)["data"]["outcome"]
    assert (outcome["status"], outcome["error"]["node"], outcome["error"]["code"]) == ("failed", "gate", "graph")


def test_answers_are_given_in_the_order_asked(callboard: Callboard, ask: str) -> None:
    assert callboard("run", "-q", ask, "--answer", "Ada", "--answer", "No ")[:2] == (0, "Ada: no\n")


def test_answers_from_a_file_go_by_node(callboard: Callboard, ask: str, tmp_path: Path) -> None:
    (tmp_path / "answers.yaml").write_text("gate: yes\nwho: [Grace]\n")
    assert callboard("run", "-q", ask, "--answers", str(tmp_path / "answers.yaml"))[:2] == (0, "Grace: yes\n")


def test_answers_that_are_left_are_warned_about(callboard: Callboard, ask: str) -> None:
    code, _out, err = callboard("run", ask, "--answer", "Ada", "--answer", "no", "--answer", "more")
    assert code == 0
    assert has_message(err, "runs.execution.Execution._warn_of_unused_answers")
    assert err.rstrip().endswith(": more")


def test_a_question_that_nobody_can_answer_ends_with_5(callboard: Callboard, ask: str) -> None:
    code, out, err = callboard("run", ask, "-o", "json", "--answer", "Ada")
    assert (code, last(out)["error"]["code"]) == (5, "nobody_to_ask")
    assert "Greet Ada?" in err


def test_a_timeout_ends_with_4(callboard: Callboard, talk: str, models: FakeModels) -> None:
    models.script(Reply("late", delay=60))
    code, out, _err = callboard("run", talk, "world", "-o", "json", "--timeout", "0.2")
    assert (code, last(out)["error"]["code"]) == (4, "timeout")


@pytest.mark.parametrize(("flag", "value"), [("--max-turns", "1"), ("--max-tokens", "15")])
def test_a_budget_ends_with_4(callboard: Callboard, talk: str, tmp_path: Path, flag: str, value: str) -> None:
    twice = LLM.replace("next: end}", "next: again}", 1) + '  again: {type: llm, prompt: "x", next: end}\n'
    code, out, _err = callboard("run", written(tmp_path, twice), "x", "-o", "json", flag, value)
    assert code == 4, out


def test_an_upstream_that_stays_broken_ends_with_6(callboard: Callboard, tmp_path: Path, models: FakeModels) -> None:
    models.answer_with(lambda _request: Reply(status=503, error="down for repairs"))
    graph = written(tmp_path, LLM.replace("fallback: lost, next: end", "next: end"))
    code, out, _err = callboard("run", graph, "x", "-o", "json", "--compat", "loki")
    assert (code, last(out)["error"]["code"]) == (6, "upstream")


def test_a_missing_key_ends_with_3(callboard: Callboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path / "none"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    code, out, err = callboard("run", written(tmp_path, LLM), "x", "-m", "openai:gpt-4o", "-o", "json")
    assert (code, last(out)["run_id"], last(out)["error"]["code"]) == (3, "", "credentials")
    assert "OPENAI_API_KEY" in err


def test_an_invalid_file_ends_with_2_and_every_problem(callboard: Callboard, tmp_path: Path) -> None:
    graph = written(tmp_path, ASK.replace("next: gate", "next: gat").replace("on_other: end", "on_other: ende"))
    code, out, err = callboard("run", graph)
    assert (code, out) == (2, "")
    assert has_message(err, "protocol.problems.suggestion", name="gate")
    assert has_message(err, "protocol.problems.suggestion", name="end")


def test_unknown_keys_are_errors_with_strict_only(callboard: Callboard, tmp_path: Path) -> None:
    graph = written(tmp_path, ASK + "colour: red\n")
    answers = ["--answer", "Ada", "--answer", "yes"]
    code, _out, err = callboard("run", graph, *answers)
    assert code == 0
    assert "warning:" in err
    assert "colour" in err
    assert callboard("run", "--strict", graph, *answers)[0] == 2


def test_set_overrides_the_initial_state(callboard: Callboard, talk: str, models: FakeModels) -> None:
    assert callboard("run", "-q", talk, "world", "--set", 'tone="stern"')[0] == 0
    assert models.requests[0].prompt == "stern world"


def test_text_piped_in_is_appended_to_the_prompt(
    callboard: Callboard, talk: str, models: FakeModels, tmp_path: Path
) -> None:
    (tmp_path / "piped").write_text("and all\n")
    keep = os.dup(0)
    with (tmp_path / "piped").open("rb") as piped:
        os.dup2(piped.fileno(), 0)
        try:
            assert callboard("run", "-q", talk, "world")[0] == 0
        finally:
            os.dup2(keep, 0)
            os.close(keep)
    assert models.requests[0].prompt == "kind world\nand all"


def test_the_model_that_nobody_named_is_told_in_one_line(
    callboard: Callboard, tmp_path: Path, models: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path / "none"))
    for name, value in models.environ().items():
        monkeypatch.setenv(name, value)
    graph = written(tmp_path, LLM)
    told = [line for line in callboard("run", graph, "x")[2].splitlines() if "model: openai:" in line]
    assert len(told) == 1
    assert has_message(told[0], "work.models.catalog.ModelCatalog.choice.2", variable="…OPENAI_API_KEY")
    assert "model: " not in callboard("run", graph, "x", "-m", "openai:other")[2]


def test_a_reader_that_goes_away_stops_the_run_with_141(
    callboard: Callboard, talk: str, models: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, sender = os.pipe()
    os.close(receiver)
    models.script(Reply("never", delay=60))
    with os.fdopen(sender, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        assert callboard("run", "-q", talk, "x", "-o", "stream-json") == (141, "", "")


def test_a_question_that_nobody_can_answer_says_how_to_answer_it(callboard: Callboard, ask: str) -> None:
    assert has_message(callboard("run", ask, "--no-input")[2], "cli.actions.run._print_failure")


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
@pytest.mark.parametrize("flag", ["--timeout", "--max-turns", "--max-tokens", "--max-cost"])
def test_a_limit_is_a_number_above_zero(callboard: Callboard, talk: str, flag: str, value: str) -> None:
    code, out, err = callboard("run", talk, "x", flag, value)
    assert (code, out) == (2, "")
    assert f"Invalid value for '{flag}': '{value}' is not a " in err


BOSS = """
name: boss
instructions: You are {{role}}.
can_spawn_agents: true
can_ask_user: false
global_tools: [fs_write]
variables: [{name: role, description: What it is}]
"""


@pytest.fixture
def boss(tmp_path: Path, models: FakeModels, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An agent that may spawn and write; its directory is the working one."""
    (tmp_path / "config.yaml").write_text(BOSS)
    monkeypatch.chdir(tmp_path)
    kid = tmp_path / "config" / "agents" / "kid"
    kid.mkdir(parents=True)
    (kid / "config.yaml").write_text("name: kid\ninstructions: You are the kid.\n")
    return tmp_path


def test_an_agent_runs_as_a_graph_does_and_json_tells_of_its_children(
    callboard: Callboard, boss: Path, models: FakeModels
) -> None:
    def answer(request: Request) -> Reply | str:
        if "the kid" in request.system:
            return "kid here"
        if not request.results:
            return Reply(calls=[("agent__spawn", {"agent": "kid", "prompt": "hello"})])
        if len(request.results) == 1:
            return Reply(calls=[("agent__collect", {"id": json.loads(request.results[0])["id"]})])
        return "collected"

    models.answer_with(answer)
    code, out, err = callboard("run", str(boss), "go", "--var", "role=chief", "-o", "json")
    outcome = json.loads(out)
    assert (code, outcome["status"], outcome["output"]) == (0, "done", "collected")
    assert (outcome["turns"], outcome["tool_calls"]) == (4, 2)
    (child,) = outcome["children"]
    assert (child["agent"], child["status"], child["output"], child["turns"]) == ("kid", "completed", "kid here", 1)
    assert f"{child['id']} start" in err
    assert f"{child['id']} done in" in err
    assert "You are chief." in models.requests[0].system


def test_a_graph_that_sends_its_prompt_to_a_model_is_not_run_without_one(
    callboard: Callboard, talk: str, models: FakeModels, tmp_path: Path
) -> None:
    code, _out, err = callboard("run", talk)
    assert (code, models.requests) == (2, [])
    assert has_message(err, "cli.actions.missing_inputs.check_prompt", node="say")
    assert callboard("run", "coder")[0] == 2
    assert models.requests == []
    assert callboard("run", "-q", talk, " ") == (0, "ok\n", "")


def test_a_prompt_of_several_words_needs_quotes(callboard: Callboard) -> None:
    code, _out, err = callboard("run", "coder", "fix", "the", "bug")
    assert code == 2
    assert "quote it: 'fix the bug'" in err


def test_a_variable_that_nobody_can_be_asked_for_is_wrong_usage(
    callboard: Callboard, boss: Path, models: FakeModels
) -> None:
    code, out, err = callboard("run", str(boss), "go")
    assert (code, out) == (2, "")
    assert has_message(err, "work.variables.resolve_variables.4", how="--var role=VALUE…")
    assert models.requests == []


@pytest.mark.parametrize("flags", [["--yes"], ["--allow", "fs_write"], []], ids=" ".join)
def test_permission_for_a_run_is_given_beforehand_or_refused(
    callboard: Callboard, boss: Path, models: FakeModels, flags: list[str]
) -> None:
    models.script(Reply(calls=[("fs_write", {"path": "new.txt", "contents": "x"})]), "tried")
    assert callboard("run", "-q", str(boss), "go", "--var", "role=r", *flags)[:2] == (0, "tried\n")
    assert (boss / "new.txt").exists() == bool(flags)
