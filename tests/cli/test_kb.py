"""`callboard kb`: bases named, built, looked at and looked into, with what goes wrong told where it belongs."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from support.messages import has_message
from support.tiny_weights import put_weights

from callboard.actors.work.knowledge.base.layout import BaseLayout
from callboard.actors.work.library import AGENTS
from callboard.actors.work.models import weights

Callboard = Callable[..., "tuple[int, str, str]"]

WORDS = ["apples", "are", "bicycle", "blue", "plums", "red", "wheels"]

GRAPH = """
name: gardener
start: look
nodes:
  look: {type: rag, documents: [fruit], state_updates: {found: "{{output.context}}"}, next: done}
  tools: {type: rag, documents: [tools.md], state_updates: {found: "{{output.context}}"}, next: done}
  done: {type: end, output: "{{found}}"}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration directory with nothing in it; the working directory has `docs`; `local:static` works."""
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    put_weights(monkeypatch, tmp_path / "cache", WORDS)
    here = tmp_path / "here"
    (here / "docs").mkdir(parents=True)
    (here / "docs" / "plums.md").write_text("# Fruit\n\nPlums are blue.\n")
    (here / "docs" / "apples.md").write_text("Apples are red.\n")
    monkeypatch.chdir(here)
    return tmp_path / "config"


@pytest.fixture
def gardener(home: Path) -> Path:
    """An agent with two rag nodes."""
    agent = home / "agents" / "gardener"
    (agent / "fruit").mkdir(parents=True)
    (agent / "graph.yaml").write_text(GRAPH)
    (agent / "fruit" / "plums.md").write_text("Plums are blue.")
    (agent / "tools.md").write_text("A bicycle has wheels.")
    return agent


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """The files of a directory, as pages; the address."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def made(callboard: Callboard, *flags: str) -> None:
    assert callboard("kb", "new", "fruit", "docs", *flags)[0] == 0


def built(callboard: Callboard) -> None:
    made(callboard)
    assert callboard("kb", "build", "fruit", "-q")[0] == 0


# --- new and list -----------------------------------------------------------------------------------------


def test_a_newcomer_is_led_from_nothing_to_an_answer(callboard: Callboard, home: Path) -> None:
    code, out, err = callboard("kb")
    assert (code, err) == (0, "")
    assert has_message(out, "cli.actions.kb.list_bases.2")
    code, out, err = callboard("kb", "new", "fruit", "docs")
    assert (code, err) == (0, "")
    wrote, _, build, ask = out.splitlines()
    assert wrote == f"wrote {home}/knowledge/fruit.yaml"
    assert ask == 'callboard ask --kb fruit "what you want to know"'
    assert "fruit  not built" in callboard("kb")[1]
    code, out, err = callboard(*build.split()[1:])
    assert (code, err) == (0, "")
    assert out.startswith("fruit: 2 added; 2 chunks, 2 embedded, in ")
    assert "fruit  2 chunks  today  docs" in callboard("kb", "list")[1]
    code, out, err = callboard("kb", "search", "fruit", "which plums are blue", "--top-k", "1")
    assert (code, err) == (0, "")
    score, where, heading = out.splitlines()[0].split("  ")
    assert (float(score) > 0, where, heading) == (True, "docs/plums.md:1-3", "Fruit")
    assert out.splitlines()[1:4] == ["    # Fruit", "", "    Plums are blue."]


def test_a_name_that_is_taken_is_left_alone(callboard: Callboard, home: Path) -> None:
    made(callboard, "--chunk-size", "200", "--description", "What grows.")
    before = (home / "knowledge" / "fruit.yaml").read_text()
    assert "chunk_size: 200" in before
    code, out, err = callboard("kb", "new", "fruit", "docs/plums.md")
    assert (code, out) == (2, "")
    assert has_message(err, "work.knowledge.registry.make.2")
    assert (home / "knowledge" / "fruit.yaml").read_text() == before


def test_a_site_is_a_source_and_a_missing_file_is_none(callboard: Callboard, home: Path) -> None:
    assert callboard("kb", "new", "site", "https://example.com/**")[0] == 0
    code, _out, err = callboard("kb", "new", "other", "nothing.md")
    assert (code, err) == (2, "callboard: nothing.md: there is no such file or directory\n")
    code, _out, err = callboard("kb", "new", "other", "git:./project")
    assert code == 2
    assert has_message(err, "work.knowledge.registry._check.2", source="…git:./project", hint="…`document_loaders`…")


def test_chunks_that_would_repeat_all_of_each_other_are_not_asked_for(callboard: Callboard, home: Path) -> None:
    code, out, err = callboard("kb", "new", "fruit", "docs", "--chunk-size", "100", "--chunk-overlap", "100")
    assert (code, out) == (2, "")
    assert has_message(err, "work.knowledge.registry.make.3", chunk_overlap=100, chunk_size=100)
    assert not (home / "knowledge").exists()


def test_documents_in_place_of_a_name_lead_to_kb_new(callboard: Callboard, home: Path) -> None:
    for documents in ("docs", "./docs"):
        code, out, err = callboard("kb", "build", documents)
        assert (code, out) == (2, "")
        assert f"to make a base of it: callboard kb new NAME {documents}" in err


def test_bases_of_agents_are_listed_and_broken_files_hide_nothing(
    callboard: Callboard, home: Path, gardener: Path
) -> None:
    made(callboard)
    (home / "knowledge" / "bad.yaml").write_text("documents: 3")
    (home / "agents" / "odd").mkdir()
    (home / "agents" / "odd" / "config.yaml").write_text("name: odd\nwhat:")
    code, out, _err = callboard("kb", "list", "-o", "json")
    bases = json.loads(out)["bases"]
    assert code == 0
    assert {base["target"] for base in bases} >= {"fruit", "bad", "gardener:look", "gardener:tools"}
    assert "errors" in next(base["error"] for base in bases if base["target"] == "bad")
    assert "bad" in callboard("kb")[1]


def test_a_key_that_nobody_knows_is_told_by_name(callboard: Callboard, home: Path) -> None:
    made(callboard)
    file = home / "knowledge" / "fruit.yaml"
    file.write_text(file.read_text() + "chunksize: 5\n")
    code, _out, err = callboard("kb", "build", "fruit", "-q")
    assert code == 0
    assert "warning: unknown key `chunksize`" in err
    assert has_message(err, "protocol.problems.suggestion", name="chunk_size")


# --- build ------------------------------------------------------------------------------------------------


def test_only_what_changed_is_built_again_and_status_says_what_that_is(callboard: Callboard, home: Path) -> None:
    built(callboard)
    assert callboard("kb", "build", "fruit")[1] == "fruit: up to date, 2 chunks of 2 sources\n"
    assert has_message(callboard("kb", "status", "fruit")[1], "cli.actions.kb._status_text.5")
    Path("docs/new.md").write_text("A bicycle has wheels.")
    Path("docs/apples.md").write_text("Apples are blue, too.")
    Path("docs/plums.md").unlink()
    code, out, _err = callboard("kb", "status", "fruit")
    assert code == 0
    assert "1 added (docs/new.md), 1 changed (docs/apples.md), 1 removed (docs/plums.md)" in out
    assert "callboard kb build fruit" in out
    out = callboard("kb", "build", "fruit")[1]
    assert out.startswith("fruit: 1 added, 1 changed, 1 removed; 2 chunks, 2 embedded, in ")
    assert callboard("kb", "rebuild", "fruit")[1].startswith("fruit: 2 added")


def test_what_could_not_be_read_is_told_once_and_kept_in_status(callboard: Callboard, home: Path) -> None:
    Path("docs/bad.md").write_bytes(b"\0\1\2\3" * 100)
    made(callboard)
    code, out, err = callboard("kb", "build", "fruit")
    assert (code, err.count("docs/bad.md")) == (0, 1)
    assert err.startswith("not read: docs/bad.md: ")
    assert out.endswith("; 1 source could not be read\n")
    again = callboard("kb", "build", "fruit", "-q")[1]
    assert again == "fruit: up to date, 2 chunks of 2 sources; 1 source could not be read\n"
    assert "docs/bad.md: " in callboard("kb", "status", "fruit")[1].partition("could not be read: 1")[2]


def test_a_build_under_way_is_told_from_one_that_was_interrupted(callboard: Callboard, home: Path) -> None:
    built(callboard)
    layout = BaseLayout(home / "knowledge" / "fruit.kb")
    layout.building.mkdir()
    handle = layout.build_lock()
    try:
        out = callboard("kb", "status", "fruit")[1]
        assert re.search(rf"  building   process {os.getpid()} since \d\d:\d\d:\d\d is building it\n", out)
        assert "interrupted" not in out
    finally:
        os.close(handle)
    out = callboard("kb", "status", "fruit")[1]
    assert has_message(out, "cli.actions.kb._status_text.3")
    assert "is building it" not in out


def test_a_base_that_came_out_empty_is_no_success(callboard: Callboard, home: Path) -> None:
    Path("empty").mkdir()
    assert callboard("kb", "new", "void", "empty")[0] == 0
    code, out, _err = callboard("kb", "build", "void")
    assert (code, out) == (1, "void: empty: no readable source was found\n")


def test_a_site_that_can_not_be_reached_leaves_the_base_as_it_was_and_is_not_called_up_to_date(
    callboard: Callboard, home: Path
) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("rag_private_pages: true")
    with served(Path("docs")) as url:
        assert callboard("kb", "new", "site", f"{url}/plums.md")[0] == 0
        assert callboard("kb", "build", "site")[1].startswith("site: 1 added; 1 chunk, ")
        assert "relative to" not in callboard("kb", "status", "site")[1]
    assert callboard("kb", "build", "site", "-q")[1] == "site: unchanged, 1 chunk; 1 source could not be read\n"
    assert has_message(callboard("kb", "status", "site")[1], "cli.actions.kb._status_text.4")


def test_a_base_of_nothing_has_no_numbers_to_show(callboard: Callboard, home: Path) -> None:
    Path("empty").mkdir()
    assert callboard("kb", "new", "void", "empty", "--chunk-size", "1200")[0] == 0
    assert callboard("kb", "build", "void")[0] == 1
    out = callboard("kb", "status", "void")[1]
    assert "  model      local:static\n" in out
    assert "1,200 characters" in out


def test_json_has_the_report(callboard: Callboard, home: Path) -> None:
    made(callboard)
    code, out, err = callboard("kb", "build", "fruit", "-o", "json")
    [base] = json.loads(out)["bases"]
    assert (code, err, base["target"], base["added"], base["embedded"]) == (0, "", "fruit", 2, 2)


def test_without_weights_the_way_to_them_is_told(
    callboard: Callboard, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in weights.KNOWN["wordllama"].paths(weights.directory({"XDG_CACHE_HOME": str(home.parent / "cache")})):
        path.unlink()
    assert callboard("kb", "new", "fruit", "docs")[1].splitlines()[2] == "callboard models pull wordllama"
    code, out, err = callboard("kb", "build", "fruit")
    assert (code, out) == (3, "")
    assert "callboard models pull wordllama" in err


# --- which base -------------------------------------------------------------------------------------------


def test_an_agent_is_all_its_bases_and_a_node_is_one(callboard: Callboard, gardener: Path) -> None:
    out = callboard("kb", "build", "gardener:tools", "-q")[1]
    assert [line.partition(":  ")[0].split(": ")[0] for line in out.splitlines()] == ["gardener:tools"]
    assert (gardener / "tools.kb").is_dir()
    assert not (gardener / "look.kb").exists()
    out = callboard("kb", "build", "gardener", "-q")[1]
    assert [line.split(": ")[0] for line in out.splitlines()] == ["gardener:look", "gardener:tools"]
    out = callboard("kb", "search", "gardener", "bicycle wheels", "--mode", "keyword")[1]
    assert "gardener:look (" in out
    assert "tools.md:1" in out


def test_the_directory_of_a_base_is_enough(callboard: Callboard, gardener: Path) -> None:
    assert callboard("kb", "build", "gardener", "-q")[0] == 0
    (gardener / "graph.yaml").unlink()
    target = str(gardener / "look.kb")
    assert has_message(callboard("kb", "status", f"{target}/")[1], "cli.actions.kb._status_text.5")
    (gardener / "fruit" / "apples.md").write_text("Apples are red.")
    assert callboard("kb", "build", target)[1].startswith(f"{target}: 1 added, 1 unchanged")
    assert callboard("kb", "search", target, "red apples")[0] == 0


def test_a_name_that_means_two_things_is_refused_with_both(callboard: Callboard, home: Path, gardener: Path) -> None:
    code, out, _err = callboard("kb", "new", "gardener", "docs")
    assert code == 0
    assert callboard(*out.splitlines()[2].split()[1:])[0] == 0
    code, _out, err = callboard("kb", "status", "gardener")
    assert code == 2
    assert f"{home}/knowledge/gardener.kb" in err
    assert str(gardener) in err
    assert callboard("kb", "status", str(home / "knowledge" / "gardener.kb"))[0] == 0
    assert callboard("kb", "status", str(gardener))[0] == 0


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("fruits", "did you mean 'fruit'?"),
        ("coder", "agent 'coder' has no rag node"),
        ("gardener:loo", "did you mean 'look'?"),
        ("nowhere.kb", "there is no knowledge base in nowhere.kb"),
        ("./docs", "callboard kb new NAME ./docs"),
    ],
)
def test_what_means_nothing_is_wrong_usage(callboard: Callboard, gardener: Path, target: str, said: str) -> None:
    made(callboard)
    code, out, err = callboard("kb", "status", target)
    assert (code, out) == (2, "")
    assert said in err


def test_a_knowledge_file_of_loki_is_taken_over_by_its_name(callboard: Callboard, home: Path) -> None:
    text = "Plums are blue."
    vector = base64.b64encode(struct.pack("<256f", *([1.0] * 256))).decode()
    (home / "rags").mkdir(parents=True)
    (home / "rags" / "manual.yaml").write_text(
        f"""\
embedding_model: local:static
chunk_size: 1000
chunk_overlap: 50
reranker_model: null
top_k: 3
batch_size: null
next_file_id: 1
document_paths:
- {Path.cwd() / "manual.md"}
files:
  0:
    hash: {hashlib.sha256(text.encode()).hexdigest()}
    path: {Path.cwd() / "manual.md"}
    documents:
    - page_content: {text}
      metadata: {{}}
vectors:
  0-0: {vector}
"""
    )
    Path("manual.md").write_text(text)
    assert "manual  not built" in callboard("kb")[1]
    code, out, err = callboard("kb", "build", "manual")
    assert (code, out.split(", in ")[0]) == (0, "manual: 1 added; 1 chunk, none embedded again")
    assert f"imported the chunks of {home}/rags/manual.yaml (1)" in err
    assert "Plums are blue." in callboard("kb", "search", "manual", "Plums", "--mode", "keyword")[1]
    assert has_message(callboard("kb", "status", "manual")[1], "cli.actions.kb._status_text.5")
    assert callboard("kb", "build", "manual")[1] == "manual: up to date, 1 chunk of 1 source\n"


# --- looking ----------------------------------------------------------------------------------------------


def test_status_tells_of_a_base_what_there_is_to_know(callboard: Callboard, home: Path) -> None:
    made(callboard)
    assert "state      not built; callboard kb build fruit" in callboard("kb", "status", "fruit")[1]
    assert callboard("kb", "build", "fruit", "-q")[0] == 0
    out = callboard("kb", "status", "fruit")[1]
    for said in (
        "fruit.kb, ",
        "today, generation 1",
        "local:static, 256 numbers",
        "2 chunks of 2 sources",
        "overlap 50",
    ):
        assert said in out
    [base] = json.loads(callboard("kb", "status", "fruit", "-o", "json")[1])["bases"]
    assert (base["chunks"], base["sources"], base["stale"], base["error"]) == (2, 2, False, None)


def test_a_broken_base_is_told_with_what_to_run(callboard: Callboard, home: Path) -> None:
    built(callboard)
    for file in (home / "knowledge" / "fruit.kb").glob("gen-*/catalogue.sqlite"):
        file.write_bytes(b"")
    code, out, _err = callboard("kb", "status", "fruit")
    assert code == 3
    assert "callboard kb rebuild" in out
    assert callboard("kb", "rebuild", "fruit", "-q")[0] == 0
    assert callboard("kb", "status", "fruit")[0] == 0


def test_search_is_narrowed_by_source_score_and_mode(callboard: Callboard, home: Path) -> None:
    built(callboard)

    def found(*flags: str, query: str = "apples plums") -> list[str]:
        out = callboard("kb", "search", "fruit", query, "-o", "json", *flags)[1]
        return [chunk["source"] for chunk in json.loads(out)["bases"][0]["chunks"]]

    assert sorted(found()) == ["docs/apples.md", "docs/plums.md"]
    assert found("--source", "*/plums.md") == ["docs/plums.md"]
    assert found("--min-score", "1000") == []
    assert sorted(found("--mode", "keyword")) == ["docs/apples.md", "docs/plums.md"]
    assert found("--mode", "vector", "--top-k", "1", query="blue") == ["docs/plums.md"]


def test_nothing_found_is_exit_code_1_and_nothing_built_is_3(callboard: Callboard, home: Path) -> None:
    made(callboard)
    code, out, err = callboard("kb", "search", "fruit", "plums")
    assert (code, out) == (3, "")
    assert err == "callboard: knowledge base 'fruit' is not built; run: callboard kb build fruit\n"
    assert callboard("kb", "build", "fruit", "-q")[0] == 0
    assert callboard("kb", "search", "fruit", "zebra", "--mode", "keyword") == (
        1,
        "",
        "callboard: nothing was found\n",
    )


def test_text_of_documents_can_not_command_the_terminal(callboard: Callboard, home: Path) -> None:
    Path("docs/plums.md").write_text("Plums \x1b]0;owned\x07 are blue.")
    built(callboard)
    assert "\x1b" not in callboard("kb", "search", "fruit", "plums")[1]


def test_every_chunk_is_exported_as_a_line(callboard: Callboard, home: Path) -> None:
    built(callboard)
    code, out, err = callboard("kb", "export", "fruit")
    assert (code, err) == (0, "")
    chunks = [json.loads(line) for line in out.splitlines()]
    assert [(chunk["source"], chunk["lines"], chunk["heading"]) for chunk in chunks] == [
        ("docs/apples.md", [1, 1], []),
        ("docs/plums.md", [1, 3], ["Fruit"]),
    ]
    assert all(len(chunk["id"]) == 32 for chunk in chunks)


# --- drop -------------------------------------------------------------------------------------------------


def test_nothing_is_removed_unless_somebody_says_so(callboard: Callboard, home: Path) -> None:
    built(callboard)
    code, out, err = callboard("kb", "drop", "fruit")
    assert (code, out) == (2, "")
    assert "--yes" in err
    assert callboard("kb", "drop", "fruit", "--yes") == (0, f"removed {home}/knowledge/fruit.kb\n", "")
    assert sorted(path.name for path in (home / "knowledge").iterdir()) == ["fruit.yaml"]
    assert callboard("kb", "drop", "fruit") == (0, "fruit is not built\n", "")


def test_the_agents_that_come_with_us_are_never_written_to(callboard: Callboard, home: Path) -> None:
    bases = json.loads(callboard("kb", "list", "-o", "json")[1])["bases"]
    assert all(not Path(base["directory"]).is_relative_to(AGENTS) for base in bases)
