"""What a prompt is given besides its words: knowledge bases (`--kb`), attached documents (`-f`), the last reply."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fake_models import FakeModels
from support.messages import has_message
from support.starter import CALLBOARD
from support.tiny_weights import put_weights

Callboard = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def here(tmp_path: Path, models: FakeModels, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with `docs`, a cache directory with small weights, and a base `fruit` that is not built."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    put_weights(monkeypatch, tmp_path / "cache", ["apples", "are", "blue", "plums", "red"])
    folder = tmp_path / "here"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "plums.md").write_text("plums are blue")
    (folder / "docs" / "apples.md").write_text("apples are red")
    (tmp_path / "config" / "knowledge").mkdir()
    (tmp_path / "config" / "knowledge" / "fruit.yaml").write_text(f"documents: [docs]\nrelative_to: {folder}")
    monkeypatch.chdir(folder)
    return folder


def test_a_base_is_built_when_it_is_needed_and_what_it_knows_goes_into_the_prompt(
    callboard: Callboard, models: FakeModels, here: Path
) -> None:
    code, out, err = callboard("ask", "are plums blue", "--kb", "fruit")
    assert (code, out) == (0, "ok\n")
    assert "[Source: docs/plums.md]\nplums are blue" in models.requests[0].prompt
    assert models.requests[0].prompt.count("are plums blue") == 1
    built, found = [line for line in err.splitlines() if "knowledge base 'fruit'" in line]
    assert has_message(built, "cli.render.brief.built_in_short.2", chunks="2 chunks", embedded=2, lost=", in …")
    assert "found 2 passages of docs/plums.md, docs/apples.md in " in found
    assert "is ready" not in callboard("ask", "are plums blue", "--kb", "fruit")[2]


def test_a_base_that_is_out_of_date_is_told_and_can_be_built_anew(
    callboard: Callboard, models: FakeModels, here: Path
) -> None:
    assert callboard("ask", "-q", "are plums blue", "--kb", "fruit")[0] == 0
    (here / "docs" / "plums.md").write_text("plums are red")
    err = callboard("ask", "are plums blue", "--kb", "fruit")[2]
    assert has_message(err, "work.knowledge.run_knowledge._warn_stale.2", what="warning: knowledge base 'fruit'")
    assert "callboard kb build fruit" in err
    assert callboard("ask", "-q", "are plums blue", "--kb", "fruit", "--rebuild-kb")[0] == 0
    prompts = [request.prompt for request in models.requests]
    assert ["plums are red" in prompt for prompt in prompts] == [False, False, True]


def test_a_base_that_is_not_there_is_wrong_usage(callboard: Callboard, models: FakeModels, here: Path) -> None:
    code, out, err = callboard("ask", "hi", "--kb", "fruits")
    assert (code, out) == (2, "")
    assert has_message(err, "work.knowledge.registry.named.2", called="fruits", hint="…'fruit'…")
    assert models.requests == []


def test_attached_documents_stand_before_the_prompt_also_of_a_graph(
    callboard: Callboard, models: FakeModels, here: Path
) -> None:
    (here / "echo.yaml").write_text("name: echo\nstart: done\nnodes: {done: {type: end, output: '{{initial_prompt}}'}}")
    attached = '<document source="docs/plums.md">\nplums are blue\n</document>'
    assert callboard("ask", "-q", "-f", "docs/plums.md", "what are they?")[0] == 0
    assert models.requests[0].prompt == f"{attached}\n\nwhat are they?"
    assert callboard("run", "-q", "echo.yaml", "hm?", "-f", "docs/plums.md")[1] == f"{attached}\n\nhm?\n"


def test_with_documents_no_prompt_is_needed(callboard: Callboard, models: FakeModels, here: Path) -> None:
    assert callboard("ask", "-q", "-f", "docs/plums.md")[0] == 0
    assert models.requests[0].prompt.startswith("<document")


def test_the_last_reply_can_be_attached_and_a_failure_leaves_the_one_before(
    callboard: Callboard, models: FakeModels, here: Path
) -> None:
    models.script("It is blue.")
    assert callboard("ask", "-q", "which colour?")[0] == 0
    assert callboard("ask", "-q", "hi", "--max-turns", "1", "-f", "nothing.md")[0] == 2
    assert callboard("ask", "-q", "-f", "%%", "shorter")[0] == 0
    assert "It is blue." in models.requests[1].prompt


def test_a_command_is_run_because_it_was_typed(callboard: Callboard, models: FakeModels, here: Path) -> None:
    assert callboard("ask", "-q", "-f", "`cat docs/*.md`", "well?")[0] == 0
    assert "apples are redplums are blue" in models.requests[0].prompt
    code, out, err = callboard("ask", "-f", "`exit 3`", "well?")
    assert (code, out) == (2, "")
    assert "`exit 3`: the command exited with status 3" in err


def test_of_a_command_that_writes_much_the_first_line_says_why(callboard: Callboard, here: Path) -> None:
    command = "echo 'warning: Not a git repository' >&2; seq 1000 >&2; exit 129"
    _code, _out, err = callboard("ask", "-f", f"`{command}`", "well?")
    assert "the command exited with status 129: warning: Not a git repository\n" in err
    assert "[...]" in err
    assert "1000" in err


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("https://example.com/**", "Invalid website 'https://example.com/**'"),
        ("docs/nothing.md", "docs/nothing.md: there is no such file or directory"),
    ],
)
def test_what_can_not_be_attached_is_told_before_anything_runs(
    callboard: Callboard, models: FakeModels, here: Path, file: str, said: str
) -> None:
    code, out, err = callboard("ask", "-o", "json", "-f", file, "hi")
    assert (code, json.loads(out)["error"]["code"], json.loads(out)["run_id"]) == (2, "usage", "")
    assert said in err
    assert models.requests == []


def test_names_are_completed(here: Path, tmp_path: Path) -> None:
    (tmp_path / "config" / "knowledge" / "figs.yaml").write_text("documents: [x]")
    (here / "local.kb").mkdir()

    def completed(*words: str) -> set[str]:
        environment = {**os.environ, "_CALLBOARD_COMPLETE": "bash_complete", "COMP_CWORD": str(len(words) - 1)}
        command = CALLBOARD
        text = subprocess.run(
            command, env={**environment, "COMP_WORDS": " ".join(words)}, capture_output=True, text=True, check=True
        ).stdout
        return {line.removeprefix("plain,") for line in text.splitlines()}

    assert completed("callboard", "ask", "--kb", "f") == {"fruit", "figs"}
    assert completed("callboard", "kb", "status", "fru") == {"fruit"}
    assert {"local.kb"} <= completed("callboard", "kb", "status", "loc")
