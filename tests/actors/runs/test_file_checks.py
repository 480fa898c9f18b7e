"""What an agent looks things up in is looked for before anything is built."""

from __future__ import annotations

from pathlib import Path

import pytest

import callboard

GRAPH = """name: g
start: look
nodes:
  look: {type: rag, documents: [DOCUMENTS], state_updates: {found: "{{output.context}}"}, next: done}
  done: {type: end, output: "{{found}}"}
"""
AGENT = "name: g\ninstructions: x\ndocuments: [DOCUMENTS]\n"


@pytest.mark.parametrize(("file", "text"), [("graph.yaml", GRAPH), ("config.yaml", AGENT)])
@pytest.mark.parametrize(
    ("documents", "hints"),
    [
        ("./notes/, a.md", []),
        ("'*.txt', 'https://example.com/x', 'git:./nothing', 'x/**'", []),
        (f"~nobody-of-this-name/x, {'x' * 300}", []),
        ("./nots, a.md, /no/such/file.md", ["did you mean 'notes'?", "paths are relative to the agent's directory."]),
    ],
)
def test_a_document_that_is_not_there_is_a_warning_where_it_is_named(
    tmp_path: Path, file: str, text: str, documents: str, hints: list[str]
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "a.md").touch()
    (tmp_path / file).write_text(text.replace("DOCUMENTS", documents))
    problems = callboard.validate(tmp_path, config_dir=tmp_path / "config")
    assert [problem.hint for problem in problems] == hints
    for problem in problems:
        assert (problem.severity, problem.code, problem.file) == ("warning", "missing_document", str(tmp_path / file))
        assert problem.node == ("look" if text is GRAPH else None)
        assert problem.line == (4 if text is GRAPH else 3)


def test_of_several_tools_files_of_aichat_the_first_counts_and_the_others_are_named(tmp_path: Path) -> None:
    (tmp_path / "tools.sh").write_text("# @cmd Says hello\nhello() { echo hello; }\n")
    (tmp_path / "tools.py").write_text('def bye():\n    """Says bye."""\n')
    (tmp_path / "tools.js").write_text("/** Hums. */\nexports.hum = () => 1;\n")
    (tmp_path / "index.yaml").write_text("name: demo\ninstructions: x\n")
    (problem,) = callboard.validate(tmp_path, config_dir=tmp_path / "config")
    assert (problem.severity, problem.code) == ("warning", "tool_files")
    assert "tools.js, tools.py" in problem.message
    (tmp_path / "index.yaml").rename(tmp_path / "config.yaml")
    (problem,) = callboard.validate(tmp_path, config_dir=tmp_path / "config")
    assert (problem.severity, problem.code) == ("error", "tool_files")
