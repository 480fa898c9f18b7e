"""The rebuilt agents of the seeds, run: coder by its scripts' paths, deep-research as far as it can go yet.

Their llm nodes list tools, which this version does not run, so the copies here have the lists taken out.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request
from support.mcp_entries import _own_cache, mcp_json, scripted, starts  # noqa: F401 - a fixture

FIXTURES = Path(__file__).parents[2] / "fixtures" / "agents"

BUILD = """n=$(cat builds 2>/dev/null || echo 0); echo $((n + 1)) > builds; echo "build $n"; [ $n -ge 1 ]"""
"""Fails once, then passes."""


@pytest.fixture
def installed(agent_runner: AgentRunner) -> Callable[[str], Path]:
    """Copies a fixture agent into the configuration directory."""

    def copy(name: str) -> Path:
        agents = agent_runner.config_dir / "agents"
        shutil.copytree(FIXTURES / ".shared", agents / ".shared", dirs_exist_ok=True)
        return Path(shutil.copytree(FIXTURES / name, agents / name))

    return copy


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, which the run is started in; nothing of the outer environment decides about it."""
    directory = tmp_path / "project"
    directory.mkdir()
    monkeypatch.chdir(directory)
    for name in ("BUILD_CMD", "TEST_CMD", "CODER_AUTOAPPROVE"):
        monkeypatch.delenv(name, raising=False)
    return directory


def plan(score: int) -> str:
    return json.dumps(
        {
            "plan_summary": "Say hello.",
            "files_to_modify": ["/p/a.py"],
            "files_to_create": [],
            "complexity_score": score,
            "risks": ["none", "really"],
        }
    )


async def test_coder_builds_mends_and_tests_until_it_holds(
    agent_runner: AgentRunner, installed: Callable[[str], Path], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("coder")
    monkeypatch.setenv("BUILD_CMD", BUILD)
    monkeypatch.setenv("TEST_CMD", "echo tested")
    agent_runner.models.script(plan(3), "written", "mended")
    outcome = await agent_runner.run("greet", target="coder")
    assert outcome.status == "done"
    assert outcome.output.splitlines()[:3] == ["CODER_COMPLETE", "Say hello.", 'Changed: ["/p/a.py"]']
    assert outcome.order == [
        "resolve_paths",
        "analyze_request",
        "route_complexity",
        "implement",
        "verify_build",
        "fix_loop_gate",
        "implement",
        "verify_build",
        "verify_tests",
        "end_success",
    ]
    assert outcome.state["project_dir"] == str(project)
    assert outcome.state["fix_attempts"] == 1
    assert outcome.state["last_node_output"] == "mended"
    assert (project / "builds").read_text() == "2\n"
    # The second try is told what the first one broke.
    first, second = (request.prompt for request in agent_runner.models.requests[1:])
    assert "The build failed (try 1 of 3)" not in first
    assert "The build failed (try 1 of 3)" in second
    assert "build 0" in second
    assert agent_runner.models.unused == 0
    agent_runner.check_stream()


async def test_coder_goes_back_when_its_tests_fail(
    agent_runner: AgentRunner, installed: Callable[[str], Path], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("coder")
    monkeypatch.setenv("BUILD_CMD", "true")
    monkeypatch.setenv("TEST_CMD", BUILD)
    agent_runner.models.script(plan(3), "written", "mended")
    outcome = await agent_runner.run("greet", target="coder")
    assert outcome.output.startswith("CODER_COMPLETE\n")
    assert outcome.nodes["verify_tests"].visits == 2
    assert "The test run failed (try 1 of 3)" in agent_runner.models.requests[2].prompt


@pytest.mark.parametrize(
    ("answer", "sentinel"), [("yes", "CODER_COMPLETE"), ("no", "CODER_REJECTED"), ("rather not", "CODER_REJECTED")]
)
async def test_coder_shows_a_large_plan_to_a_person(
    agent_runner: AgentRunner, installed: Callable[[str], Path], project: Path, answer: str, sentinel: str
) -> None:
    installed("coder")
    agent_runner.models.script(plan(8), "written")
    outcome = await agent_runner.run("greet", target="coder", answers={"gate_approval": answer})
    assert outcome.output.splitlines()[0] == sentinel
    (asked,) = agent_runner.of("question.asked")
    assert 'Risks:    ["none","really"]' in asked.question["text"]
    assert "Size:     8 of 10" in asked.question["text"]
    assert ("implement" in outcome.nodes) is (answer == "yes")


async def test_coder_asks_nobody_when_it_is_told_to_approve_itself(
    agent_runner: AgentRunner, installed: Callable[[str], Path], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("coder")
    monkeypatch.setenv("CODER_AUTOAPPROVE", "1")
    agent_runner.models.script(plan(8), "written")
    outcome = await agent_runner.run("greet", target="coder")
    assert outcome.output.startswith("CODER_COMPLETE\n")
    assert "gate_approval" not in outcome.nodes


async def test_coder_gives_up_when_its_tries_are_used_up(
    agent_runner: AgentRunner, installed: Callable[[str], Path], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("coder")
    monkeypatch.setenv("BUILD_CMD", "echo broken; exit 2")
    agent_runner.models.script(plan(3))
    outcome = await agent_runner.run("greet", target="coder", state={"max_fix_attempts": 2})
    assert outcome.status == "done"
    lines = outcome.output.splitlines()
    assert lines[0] == "CODER_FAILED"
    assert "Tries: 2 of 2" in lines
    assert "[exit 2]" in outcome.output
    assert outcome.nodes["implement"].visits == 3


async def test_coder_says_so_when_its_project_does_not_exist(
    agent_runner: AgentRunner, installed: Callable[[str], Path], project: Path
) -> None:
    installed("coder")
    outcome = await agent_runner.run("greet", target="coder", variables={"project_dir": "nowhere"})
    assert outcome.output.startswith("CODER_FAILED\n")
    assert outcome.order == ["resolve_paths", "end_failure"]


async def test_coder_behaves_the_same_in_loki(
    agent_runner: AgentRunner, installed: Callable[[str], Path], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("coder")
    monkeypatch.setenv("BUILD_CMD", BUILD)
    agent_runner.models.script(plan(3), "written", "mended")
    outcome = await agent_runner.run("greet", target="coder", compat="loki")
    assert outcome.output.startswith("CODER_COMPLETE\n")


async def test_deep_research_under_lokis_rules_wants_to_be_told_how_to_build_its_knowledge(
    agent_runner: AgentRunner,
) -> None:
    mcp_json(agent_runner.config_dir, **{"ddg-search": scripted()})
    outcome = await agent_runner.run("greet", target=FIXTURES / "deep-research", compat="loki")
    assert outcome.exit_code == 3
    assert outcome.error.message.startswith(
        "no knowledge base is built for rag node 'knowledge_lookup' of 'deep-research'"
    )
    assert agent_runner.models.requests == []


RAG = re.compile(r"^  knowledge_lookup:\n(?:    .*\n|\n)+?(?=  \w)", re.MULTILINE)
NO_RAG = """  knowledge_lookup:
    type: script
    script: scripts/bootstrap_research.py
    state_updates: {}
    next: research_each_question

"""


async def test_deep_research_without_documents_fans_out_maps_loops_and_asks(
    agent_runner: AgentRunner, installed: Callable[[str], Path]
) -> None:
    home = installed("deep-research")
    installed("report-writer")
    mcp_json(agent_runner.config_dir, **{"ddg-search": scripted()})
    text, count = RAG.subn(NO_RAG, (home / "graph.yaml").read_text())
    assert count == 1
    (home / "graph.yaml").write_text(text)
    verdicts = iter(["VERDICT: REVISE\nFEEDBACK: dig deeper", "VERDICT: PASS\nFEEDBACK: none", "VERDICT: PASS\n"])

    def answer(request: Request) -> Reply | str:
        prompt, system = request.prompt, str(request.json["messages"][0]["content"])
        if prompt.startswith("Question: ") and not request.results:
            assert "ddg-search__echo" in request.offered
            return Reply(calls=[("ddg-search__echo", {"text": "a page"})])
        if prompt.startswith("Research topic"):
            return '{"research_plan": "look", "questions": ["q1", "q2", "q3"]}'
        if prompt.startswith("Question: "):
            return f"found {prompt.split()[1]}" + (" deeper" if "dig deeper" in prompt else "")
        if "VERDICT" in system:
            return next(verdicts)
        return "the report" if prompt.startswith("Topic:") else "fine"

    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run(
        "tea", target="deep-research", answers={"approve": ["more on green tea", "accept"]}
    )
    assert outcome.status == "done", outcome.error
    assert outcome.output == "the report"
    visits = {id: time.visits for id, time in outcome.nodes.items()}
    assert visits["plan"] == visits["knowledge_lookup"] == 1
    assert visits["research_each_question"] == visits["critique"] == 3
    assert visits["synthesize"] == visits["approve"] == 2
    assert outcome.state["question_findings"][0].startswith("found q1")
    assert outcome.tool_calls == 9
    assert starts(agent_runner.config_dir, "ddg-search") == 1
    assert outcome.state["decision"] == "accept"
    assert outcome.order[1:4] == ["bootstrap_research", "plan", "knowledge_lookup"]
    assert max(data.item for data in agent_runner.of("node.entered") if data.item is not None) == 2
    agent_runner.check_stream()
