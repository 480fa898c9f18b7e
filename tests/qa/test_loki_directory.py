"""`callboard -C DIR ...` on a config directory of Loki's: what is in it works, and what is not taken over is told."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from corpus.loki_directory import installed
from corpus.strangers import root_of
from qa.home import Ended, QaHome
from qa.loki_directory import KINDS, lay_out
from support.fake_models import Reply

from callboard.cli.actions.doctor import list_unsupported
from callboard.protocol.problems import errors_in
from callboard.protocol.settings import read_settings


@pytest.fixture(scope="module")
def lokis(lived_in: QaHome) -> Iterator[Path]:
    """The directory; it is named on the command line alone."""
    del lived_in.environ["CALLBOARD_CONFIG_DIR"]
    yield lay_out(lived_in.home / ".config" / "loki", lived_in.models.openai_base)
    lived_in.environ["CALLBOARD_CONFIG_DIR"] = str(lived_in.config)


def callboard(qa_home: QaHome, directory: Path, *arguments: str, code: int = 0, **environ: str) -> Ended:
    """`callboard -C DIR ...` at a terminal, to its end."""
    with qa_home.terminal("-C", str(directory), *arguments, **environ) as terminal:
        ended = Ended(terminal.ended(), terminal.shown())
    assert ended.code == code, ended.shown
    assert "Traceback" not in ended.shown
    assert "unexpected error" not in ended.shown
    return ended


def test_its_settings_are_all_known_and_have_no_errors(lokis: Path) -> None:
    file = lokis / "config.yaml"
    _, problems = read_settings(file.read_text(), str(file), {})
    assert [str(problem) for problem in problems if "has no effect" not in problem.message] == []


@pytest.mark.parametrize("kind", KINDS)
def test_its_lists_have_all_that_is_there(qa_home: QaHome, lokis: Path, kind: str) -> None:
    listed = callboard(qa_home, lokis, f"--list-{kind}").shown.split()
    built_in = {"roles": 11, "macros": 1, "agents": 9}.get(kind, 0)
    assert len(listed) >= KINDS[kind]
    own = {path.stem for path in (lokis / kind).iterdir() if not path.name.startswith((".", "_"))}
    assert own <= {*listed}, f"of {built_in} built-in ones and {own}"


def test_what_is_not_taken_over_is_a_line_each(qa_home: QaHome, lokis: Path) -> None:
    told = callboard(qa_home, lokis, "doctor", "-o", "json").shown
    lines = json.loads(told.replace("\n", ""))["config"]["not_taken_over"]
    assert [line.split(":")[0] for line in lines] == [
        "vault.yml",
        "models-override.yaml",
        "functions/bin",
        "functions/scripts",
        "agents/*/bin (keeper)",
    ]
    assert "not used: vault.yml" in callboard(qa_home, lokis, "doctor").shown


def test_sign_ins_of_loki_and_servers_that_a_second_file_hides_are_told(tmp_path: Path) -> None:
    tokens = tmp_path / "cache" / "loki" / "oauth"
    tokens.mkdir(parents=True)
    (tokens / "claude_oauth_tokens.json").write_text("{}")
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "mcp.json").write_text('{"mcpServers": {"one": {}, "two": {}}}')
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"two": {}}}')
    signed_in, hidden = list_unsupported(tmp_path, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert signed_in.endswith("callboard auth login claude")
    assert hidden.endswith("copy them into it: one")
    (tmp_path / "mcp.json").write_text("[")
    assert len(list_unsupported(tmp_path, {"XDG_CACHE_HOME": str(tmp_path / "cache")})) == 2
    assert list_unsupported(tmp_path / "none", {"HOME": str(tmp_path)}) == []


def test_agents_of_aichat_are_told_with_what_takes_them_over(tmp_path: Path) -> None:
    (tmp_path / "functions" / "agents" / "todo").mkdir(parents=True)
    (tmp_path / "functions" / "agents" / "todo" / "index.yaml").write_text("name: Todo\n")
    (told,) = list_unsupported(tmp_path, {"HOME": str(tmp_path)})
    assert told.startswith("functions/agents (todo): agents of aichat; to copy them into agents/: callboard install ")


def test_a_prompt_goes_to_its_model_with_its_patch(qa_home: QaHome, lokis: Path) -> None:
    callboard(qa_home, lokis, "what is there")
    assert qa_home.last().prompt == "what is there"
    assert qa_home.last().json["seed"] == 7


def test_its_roles_answer(qa_home: QaHome, lokis: Path) -> None:
    callboard(qa_home, lokis, "-r", "translator", "hello")
    assert qa_home.last().system == "Translate what you are told."
    assert qa_home.last().json["temperature"] == 0.1
    callboard(qa_home, lokis, "-r", "wrapper", "hello")
    assert qa_home.last().prompt == "Say nothing but this: hello"
    callboard(qa_home, lokis, "-r", "pairs", "wet")
    assert [message["content"] for message in qa_home.last().json["messages"]] == ["Opposites.", "hot", "cold", "wet"]


def test_its_tools_of_three_languages_and_its_servers_are_offered_and_run(qa_home: QaHome, lokis: Path) -> None:
    for name in ("fs_ls", "stamp", "shout"):
        callboard(qa_home, lokis, "tools", "show", name)
    qa_home.says(Reply(calls=[("fs_ls", {"path": str(lokis / "macros")}), ("books__add", {"a": 1, "b": 2})]), "done")
    callboard(qa_home, lokis, "-r", "listing", "list them")
    assert "greet.yaml" in qa_home.last().results[0]
    assert qa_home.last().results[1] == "3"
    stamped = callboard(qa_home, lokis, "tools", "call", "stamp", "--json", '{"text": "ab", "times": 2}').shown
    assert "abab" in stamped


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_its_tools_in_typescript_run(qa_home: QaHome, lokis: Path) -> None:
    assert "LOUD" in callboard(qa_home, lokis, "tools", "call", "shout", "--json", '{"text": "loud"}').shown


def test_its_agents_answer_with_tools_variables_and_shared_files(qa_home: QaHome, lokis: Path) -> None:
    qa_home.says(Reply(calls=[("kept", {"shelf": "top"})]), "done")
    callboard(qa_home, lokis, "-a", "keeper", "--agent-variable", "owner", "Grace", "What is there?")
    assert "You keep things for Grace." in qa_home.last().system
    assert "from the shared file: top of Grace" in qa_home.last().results[0]
    assert {"fs_ls", "fs_cat"} <= set(qa_home.last().offered)
    assert any(name.startswith("books__") for name in qa_home.last().offered)
    assert "You said: Step: go" in callboard(qa_home, lokis, "-a", "steps", "go on").shown


def test_its_sessions_go_on(qa_home: QaHome, lokis: Path) -> None:
    callboard(qa_home, lokis, "-s", "trip", "And the museum?")
    assert [message["content"] for message in qa_home.last().json["messages"]] == [
        "Translate what you are told.",
        "Where is the station?",
        "Dove si trova la stazione?",
        "And the museum?",
    ]
    callboard(qa_home, lokis, "-s", "20260501T101112-old-things", "still", "there?")
    assert qa_home.last().json["messages"][0]["content"] == "old"
    callboard(qa_home, lokis, "-a", "keeper", "-s", "shelves", "third", "one")
    assert [message["content"] for message in qa_home.last().json["messages"][1:]] == ["first", "second", "third one"]
    assert "You keep things for Ada." in qa_home.last().system


def test_its_knowledge_bases_are_looked_up_in_without_being_embedded_anew(qa_home: QaHome, lokis: Path) -> None:
    before = len(qa_home.models.requests)
    callboard(qa_home, lokis, "--rag", "fruit", "Which", "colour", "has", "a", "plum?")
    assert "A plum is blue." in qa_home.last().prompt
    embedded = [request.json["input"] for request in qa_home.models.requests[before:] if "input" in request.json]
    assert not [text for texts in embedded for text in texts if "is blue" in text]


def test_its_macros_are_played(qa_home: QaHome, lokis: Path) -> None:
    callboard(qa_home, lokis, "--macro", "greet", "Grace", "Hopper")
    assert qa_home.last().prompt == "hello Grace Hopper"
    assert qa_home.last().system == "Translate what you are told."


def test_its_servers_are_listed_and_one_without_its_secret_costs_itself_alone(qa_home: QaHome, lokis: Path) -> None:
    listed = callboard(qa_home, lokis, "mcp", "list").shown
    assert "books" in listed
    assert "far" in listed
    assert "42" in callboard(qa_home, lokis, "mcp", "call", "books", "add", "--json", '{"a": 20, "b": 22}').shown
    with qa_home.terminal("-C", str(lokis), "mcp", "test", "far") as terminal:
        assert terminal.ended() != 0
        terminal.shows("FAR_TOKEN")


@pytest.mark.parametrize(
    ("kind", "name", "shown"),
    [
        ("role", "translator", "Translate what"),
        ("session", "trip", "Dove si trova"),
        ("agent", "keeper", "Keeps things"),
    ],
)
def test_info_shows_what_is_named(qa_home: QaHome, lokis: Path, kind: str, name: str, shown: str) -> None:
    assert shown in callboard(qa_home, lokis, f"--{kind}", name, "--info").shown


def test_nothing_of_it_is_changed_by_looking(qa_home: QaHome, lokis: Path) -> None:
    def contents() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(lokis.rglob("*")) if path.is_file()}

    before = contents()
    for arguments in (
        ["--info"],
        ["--list-agents"],
        ["tools"],
        ["agents"],
        ["roles", "show", "pairs"],
        ["mcp", "list"],
    ):
        callboard(qa_home, lokis, *arguments)
    assert contents() == before


@pytest.mark.skipif(root_of("loki-0.4.0") is None, reason="no checkout of Loki 0.4.0 ($CALLBOARD_CORPUS)")
def test_the_directory_that_lokis_own_installer_lays_out_is_read(qa_home: QaHome, tmp_path: Path) -> None:
    source = root_of("loki-0.4.0")
    assert source is not None
    config = installed(source / "assets", tmp_path / "loki")
    shutil.copy(source / "config.example.yaml", config / "config.yaml")
    shutil.copy(source / "assets" / "functions" / "mcp.json", config / "functions" / "mcp.json")
    _, problems = read_settings((config / "config.yaml").read_text(), "config.yaml", os.environ)
    assert errors_in(problems) == []
    assert [problem.key for problem in problems if "has no effect" not in problem.message] == []
    for kind in ("roles", "agents", "macros", "sessions", "rags", "models"):
        callboard(qa_home, config, f"--list-{kind}")
    for arguments in (["--info"], ["tools"], ["mcp", "list"], ["doctor"], ["-a", "sisyphus", "--info"]):
        callboard(qa_home, config, *arguments)
