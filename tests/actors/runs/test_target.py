"""What the user may name, what is found there, and what is said when nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.messages import says

import callboard
from callboard.actors.io.directories import config_dir
from callboard.actors.runs.finding import find
from callboard.actors.runs.root import load_settings
from callboard.actors.work.library import AGENTS
from callboard.protocol.errors import ConfigError, InvalidFile, UsageError

GRAPH = "name: g\nstart: e\nnodes:\n  e: {type: end}\n"
AGENT = "name: a\ninstructions: talk\n"


def test_a_graph_and_an_agent_are_loaded_with_their_directory(tmp_path: Path) -> None:
    for name, file, text in [("g", "graph.yaml", GRAPH), ("a", "config.yaml", AGENT)]:
        (tmp_path / "agents" / name).mkdir(parents=True)
        (tmp_path / "agents" / name / file).write_text(text)
    graph = callboard.load("g", config_dir=tmp_path)
    assert isinstance(graph, callboard.GraphAgent)
    assert (graph.name, graph.directory, list(graph.graph.nodes)) == ("g", tmp_path / "agents" / "g", ["e"])
    agent = callboard.load(tmp_path / "agents" / "a")
    assert isinstance(agent, callboard.LoopAgent)
    assert (agent.name, agent.agent.instructions, agent.problems) == ("a", "talk", ())


def test_validate_lists_everything_and_raises_for_nothing_but_a_target_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "graph.yaml").write_text(GRAPH.replace("start: e", "start: x") + "  f: {type: end}\nodd: 1\n")
    problems = callboard.validate(tmp_path)
    assert [(problem.severity, problem.line) for problem in problems] == [("error", 2), ("warning", 6)]
    assert {problem.severity for problem in callboard.validate(tmp_path, strict=True)} == {"error"}
    with pytest.raises(UsageError):
        callboard.validate(tmp_path / "gone")


def test_a_directory_holds_one_agent(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=says("runs.finding._in_directory.2")):
        find(tmp_path)
    (tmp_path / "graph.yaml").write_text(GRAPH)
    (tmp_path / "config.yaml").write_text(AGENT)
    with pytest.raises(InvalidFile, match=says("runs.finding._in_directory")):
        find(tmp_path)


@pytest.mark.parametrize(
    ("text", "dialect"),
    [(GRAPH, "graph"), ("start: e\n", "graph"), (AGENT, "agent"), ("graph:\n  nodes: []\n", "workflow")],
)
def test_a_file_of_any_name_is_told_by_what_it_says(tmp_path: Path, text: str, dialect: str) -> None:
    (tmp_path / "some.yaml").write_text(text)
    assert find(tmp_path / "some.yaml").dialect == dialect


def test_files_that_are_no_text_or_no_mapping_are_named(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidFile, match=says("runs.finding._text", shown="…binary.yaml")):
        find(tmp_path / "binary.yaml")
    (tmp_path / "list.yaml").write_text("- a\n- b\n")
    with pytest.raises(InvalidFile, match=r"list\.yaml"):
        find(tmp_path / "list.yaml")


def test_names_are_looked_up_in_the_configuration_directory_and_paths_are_not(tmp_path: Path) -> None:
    home = tmp_path / "agents" / "greeter"
    home.mkdir(parents=True)
    (home / "graph.yaml").write_text(GRAPH)
    assert find("greeter", config_dir=tmp_path).directory == home
    with pytest.raises(UsageError, match=says("protocol.problems.suggestion", name="greeter")):
        find("greeters", config_dir=tmp_path)
    with pytest.raises(UsageError):
        find("./greeter", config_dir=tmp_path)
    with pytest.raises(UsageError, match=says("runs.finding.find")):
        find("", config_dir=tmp_path / "none")


def test_a_bare_name_means_an_agent_before_it_means_what_lies_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    for name in ("g", "coder", "flow.yaml"):  # as in a repository that somebody else wrote
        (tmp_path / name).mkdir()
        (tmp_path / name / "graph.yaml").write_text(GRAPH)
    monkeypatch.chdir(tmp_path)
    assert find("g", config_dir=config).directory == tmp_path / "g"
    assert find("coder", config_dir=config).directory == AGENTS / "coder"
    for name in ("g", "coder", "flow.yaml"):
        home = config / "agents" / name
        home.mkdir(parents=True)
        (home / "graph.yaml").write_text(GRAPH)
    assert find("g", config_dir=config).directory == config / "agents" / "g"
    assert find("coder", config_dir=config).directory == config / "agents" / "coder"
    assert find("flow.yaml", config_dir=config).directory == tmp_path / "flow.yaml"


def test_a_path_is_never_the_name_of_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "coder").mkdir()
    (tmp_path / "coder" / "graph.yaml").write_text(GRAPH)
    (tmp_path / "config" / "agents").mkdir(parents=True)
    (tmp_path / "config" / "agents" / "graph.yaml").write_text(GRAPH)
    monkeypatch.chdir(tmp_path)
    for target in ("./coder", "coder/", "coder/graph.yaml", Path("coder")):
        assert find(target, config_dir="config").directory == tmp_path / "coder"
    monkeypatch.chdir(tmp_path / "coder")
    for target in (".", "../coder", "graph.yaml"):
        assert find(target, config_dir=tmp_path / "config").directory.samefile(tmp_path / "coder")
    with pytest.raises(InvalidFile, match=says("runs.finding._in_directory.2")):
        find("..", config_dir=tmp_path / "config")


def test_only_the_errors_of_a_graph_are_told_in_the_words_of_graphs(tmp_path: Path) -> None:
    agent = tmp_path / "config.yaml"
    agent.write_text("instructions: talk\nmax_turns: many\n")
    with pytest.raises(InvalidFile) as failed:
        callboard.load(tmp_path)
    first, *rest = str(failed.value).splitlines()
    assert first == f"{len(failed.value.problems)} error(s) in {agent}:"
    assert any("max_turns" in line for line in rest)
    (tmp_path / "broken.yaml").write_text("a: [\n")
    with pytest.raises(InvalidFile, match=r"^1 error\(s\) in .*/broken\.yaml:\n  "):
        callboard.load(tmp_path / "broken.yaml")


def test_without_validation_a_broken_graph_is_loaded_all_the_same(tmp_path: Path) -> None:
    text = GRAPH.replace("e: {type: end}", "e: {type: script, script: gone.sh, next: nowhere}")
    (tmp_path / "graph.yaml").write_text(text)
    with pytest.raises(InvalidFile, match=says("engine.graph.validate.failure_text", errors=3)):
        callboard.load(tmp_path)
    (tmp_path / "graph.yaml").write_text("settings: {validate_before_run: false}\n" + text)
    assert callboard.load(tmp_path).name == "g"


@pytest.mark.parametrize(
    ("given", "environ", "directory", "source"),
    [
        ("/a", {"CALLBOARD_CONFIG_DIR": "/b"}, "/a", "--config-dir"),
        (None, {"CALLBOARD_CONFIG_DIR": "/b", "XDG_CONFIG_HOME": "/c"}, "/b", "CALLBOARD_CONFIG_DIR"),
        (None, {"CALLBOARD_CONFIG_DIR": "", "XDG_CONFIG_HOME": "/c"}, "/c/callboard", "XDG_CONFIG_HOME"),
        ("", {"HOME": "/h"}, "/h/.config/callboard", "default"),
    ],
)
def test_the_configuration_directory(given: str | None, environ: dict[str, str], directory: str, source: str) -> None:
    assert config_dir(given, environ) == (Path(directory), source)


def test_settings_may_be_missing_and_must_be_readable(tmp_path: Path) -> None:
    _, problems = load_settings(tmp_path)
    assert problems == []
    (tmp_path / "config.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=says("io.settings.load_settings.3", file="…config.yaml")):
        load_settings(tmp_path)


# --- what validate finds beside the file ------------------------------------------------------------------


def found_in(directory: Path, file: str, text: str) -> list[tuple[str, str | None, int]]:
    """Code, key and line of every problem of an agent's file."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / file).write_text(text)
    problems = callboard.validate(directory, config_dir=directory / "none")
    return [(problem.code, problem.key, problem.line) for problem in problems]


@pytest.mark.parametrize("model", ["opnai:gpt-4o", "gpt-4o", "mine:large"])
def test_validate_finds_models_that_no_client_has(tmp_path: Path, model: str) -> None:
    settings = "clients: [{type: openai-compatible, name: mine, api_base: 'http://127.0.0.1:9/v1', models: [small]}]\n"
    (tmp_path / "config.yaml").write_text(settings)
    agent = f"name: a\nmodel: {model}\nsummarization_model: mine:small\n"
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.yaml").write_text(agent)
    (problem,) = callboard.validate(tmp_path / "a", config_dir=tmp_path)
    assert (problem.severity, problem.code, problem.key, problem.line) == ("error", "unknown_model", "model", 2)
    graph = f"""\
name: g
model: {model}
start: a
nodes:
  a: {{type: llm, prompt: p, model: '{model}', next: r}}
  r: {{type: rag, documents: [g.yaml], embedding_model: '{model}', state_updates: {{c: "{{{{output}}}}"}}, next: e}}
  e: {{type: end}}
"""
    (tmp_path / "g.yaml").write_text(graph)
    problems = callboard.validate(tmp_path / "g.yaml", config_dir=tmp_path)
    lines = (2, 5) if model == "mine:large" else (2, 5, 6)  # a client that lists no model of a kind may have any
    assert [(problem.code, problem.line) for problem in problems] == [("unknown_model", line) for line in lines]


def test_validate_checks_every_model_of_a_list(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.yaml").write_text("name: a\nmodel: [openai:x, opnai:y, claude:z]\n")
    (problem,) = callboard.validate(tmp_path / "a", config_dir=tmp_path)
    assert (problem.code, problem.key, problem.line) == ("unknown_model", "model", 2)
    assert (problem.hint or "").startswith("'opnai:y': ")
    assert "did you mean 'openai:...'?" in (problem.hint or "")
    graph = """\
name: g
model: [openai:x, claude:y]
start: a
nodes:
  a: {type: llm, prompt: p, model: [claude:y, oolama:z], next: e}
  e: {type: end}
"""
    (tmp_path / "g.yaml").write_text(graph)
    (problem,) = callboard.validate(tmp_path / "g.yaml", config_dir=tmp_path)
    assert (problem.code, problem.key, problem.line) == ("unknown_model", "nodes.a.model", 5)


def test_a_model_whose_key_is_missing_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert found_in(tmp_path / "a", "config.yaml", "name: a\nmodel: openai:gpt-4o\n") == []


def test_an_error_of_a_file_hides_nothing_else(tmp_path: Path) -> None:
    agent = "name: a\nglobal_tools: [zzz]\nmodel: opnai:x\ntop_p: high\ndocuments: [gone.md]\n"
    assert found_in(tmp_path / "a", "config.yaml", agent) == [
        ("unknown_tool", "global_tools[0]", 2),
        ("unknown_model", "model", 3),
        ("wrong_type", "top_p", 4),
        ("missing_document", "documents[0]", 5),
    ]
    graph = """\
name: g
start: a
global_tools: [zzz]
nodes:
  a: {type: llm, promt: p, next: b}
  b: {type: llm, prompt: p, model: "gpt"}
  c: {type: end, output: "{{zebra}}"}
"""
    assert found_in(tmp_path / "g", "graph.yaml", graph) == [
        ("no_reachable_end", "start", 2),
        ("unknown_tool", "global_tools[0]", 3),
        ("missing_key", "nodes.a.prompt", 5),
        ("unknown_key", "nodes.a.promt", 5),
        ("no_exit", "nodes.b", 6),
        ("unknown_model", "nodes.b.model", 6),
        ("unreachable", "nodes.c", 7),
        ("unknown_key_read", "nodes.c.output", 7),
    ]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("grap.yaml", "the file 'grap.yaml' does not exist; did you mean 'graph.yaml'?"),
        ("zebra.yml", "the file 'zebra.yml' does not exist"),
        ("./graph.yam", "the file './graph.yam' does not exist; did you mean 'graph.yaml'?"),
        ("sub/graph.yaml", "the file 'sub/graph.yaml' does not exist, because there is no directory 'sub'"),
    ],
)
def test_a_file_that_does_not_exist_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, words: str
) -> None:
    (tmp_path / "graph.yaml").write_text(GRAPH)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        find(target, config_dir=tmp_path / "none")
    assert str(caught.value) == words


def test_the_settings_of_any_configuration_directory_can_be_checked(tmp_path: Path) -> None:
    file = tmp_path / "elsewhere" / "config.yaml"
    file.parent.mkdir()
    file.write_text("model: openai:gpt-4o\nuse_tools: fs\nclients: [{type: openai}]\n")
    (problem,) = callboard.validate(file, config_dir=tmp_path)
    assert (problem.message, problem.hint) == (
        "unknown key 'use_tools'",
        "write `enabled_tools`; `use_tools` is aichat's name for it",
    )
