"""Files of other agent programs: one line says what each is."""

from __future__ import annotations

from pathlib import Path

import pytest

import callboard
from callboard.protocol import other_programs
from callboard.protocol.errors import InvalidFile

FILES = {
    "cagent.yaml": (
        "version: '2'\nagents:\n  root:\n    model: openai/gpt-4o\n    instruction: Help.\n",
        other_programs.DOCKER_AGENT,
    ),
    "team.yaml": ("agents:\n  root: {model: m, toolsets: [{type: shell}]}\n", other_programs.DOCKER_AGENT),
    "conductor.yaml": (
        "workflow: {name: x, entry_point: a}\nagents:\n- {name: a, prompt: '{{ x }}', routes: [{to: $end}]}\n",
        other_programs.CONDUCTOR,
    ),
    "recipe.yaml": ("version: 1.0.0\ntitle: T\ndescription: d\ninstructions: i\nprompt: p\n", other_programs.GOOSE),
    "agents.yaml": ("researcher: {role: r, goal: g, backstory: b}\n", other_programs.CREWAI),
    "reviewer.md": ("---\nname: r\ndescription: d\ntools: Read, Grep\n---\nYou review.\n", other_programs.CLAUDE_AGENT),
    "fix.md": ("\ufeff---\r\ndescription: Fix.\r\n---\r\nFix $ARGUMENTS.\r\n", other_programs.CLAUDE_COMMAND),
    "SKILL.md": ("---\nname: s\ndescription: d\n---\nDo.\n", other_programs.SKILL),
    "servers.yaml": ("mcpServers: {a: {command: x}}\n", other_programs.MCP),
    "flow.yaml": (
        "nodes:\n- {id: A, type: literal, config: {content: x}}\nedges: []\n",
        other_programs.BARE_WORKFLOW,
    ),
    "vars.yaml": ("version: 0.4.0\nvars: {A: 1}\n", other_programs.BARE_WORKFLOW),
    "empty.yaml": ("graph:\n", other_programs.BARE_WORKFLOW),
    "edges.yaml": ("vars: {A: 1}\nedges:\n- {from: A, to: B}\n", other_programs.BARE_WORKFLOW),
    "nodes.yaml": (
        "id: g\nstart: [A]\nnodes:\n- {id: A, type: literal, config: {content: x}}\n",
        other_programs.BARE_WORKFLOW,
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_program_is_recognised(tmp_path: Path, name: str) -> None:
    text, kind = FILES[name]
    (tmp_path / name).write_text(text, newline="")
    (problem,) = callboard.validate(tmp_path / name)
    assert (problem.severity, problem.code, problem.line) == ("error", "foreign_file", 1)
    assert kind.what in problem.message
    with pytest.raises(InvalidFile):
        callboard.load(tmp_path / name)


@pytest.mark.parametrize(
    "text",
    [
        "name: a\ninstructions: Help.\n",
        "name: a\ntitle: t\ninstructions: Help.\nversion: '1'\n",
        "name: g\nstart: d\nnodes:\n  d: {type: end, output: ok}\n",
        "graph:\n  id: g\n  nodes: [{id: A, type: literal, config: {content: x}}]\n  edges: []\nvars: {A: 1}\n",
    ],
)
def test_files_of_our_own_are_none_of_theirs(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    assert [problem.code for problem in callboard.validate(tmp_path / "a.yaml") if problem.severity == "error"] == []
