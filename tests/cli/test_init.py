"""`callboard init` writes agents that are free of problems, and never overwrites."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import callboard as package
from callboard.actors.work.library import AGENTS
from callboard.cli.new_files import PROMPTS
from callboard.protocol.errors import UsageError

Callboard = Callable[..., "tuple[int, str, str]"]


@pytest.mark.parametrize("template", PROMPTS)
def test_every_template_validates_without_a_warning(
    callboard: Callboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = callboard("init", "--template", template)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith(f"callboard run ./{template} ")
    assert package.validate(tmp_path / template, strict=True) == []


def test_what_is_printed_means_what_was_written_and_the_bare_name_does_where_no_agent_has_it(
    callboard: Callboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for template, bare in [("hello", tmp_path / "hello"), ("demo", AGENTS / "demo")]:
        _, out, _ = callboard("init", template, "--template", template)
        printed = out.splitlines()[-1].split()[2]
        assert package.load(printed).directory == tmp_path / template
        assert package.load(template).directory == bare


def test_a_file_that_is_there_is_left_alone_and_nothing_else_is_written(callboard: Callboard, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    target.mkdir()
    (target / "graph.yaml").write_text("mine\n")
    code, out, err = callboard("init", str(target), "--template", "script")
    assert (code, out) == (2, "")
    assert "was not changed" in err
    assert (target / "graph.yaml").read_text() == "mine\n"
    assert [path.name for path in target.iterdir()] == ["graph.yaml"]


def test_a_directory_that_cannot_be_written_is_named(callboard: Callboard) -> None:
    code, _out, err = callboard("init", "/proc/nowhere/x")
    assert code == UsageError.exit_code
    assert "/proc/nowhere" in err
