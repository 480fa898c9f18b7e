"""Templates that read a state key which nothing can write are told, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.graph_checks import check_text
from support.messages import has_message

from callboard.actors.engine.graph.findings import CheckContext
from callboard.protocol.problems import Problem, errors_in, slip_of

TALE = """\
name: tale
start: write
{top}
nodes:
  write: {{type: llm, prompt: "{prompt}", state_updates: {{poem: "{{{{output}}}}"}}, next: done}}
  done: {{type: end, output: "{output}"}}
"""
SCRIPTED = """\
name: tale
start: look
nodes:
  look: {type: script, script: scripts/look.py, state_updates: {poem: ""}, next: done}
  done: {type: end, output: "{{%s}}"}
"""


def told(text: str, directory: Path | None = None, *, strict: bool = False) -> list[Problem]:
    around = None if directory is None else CheckContext(directory=directory)
    _, problems = check_text(text, "graph.yaml", around, strict=strict)
    return [problem for problem in problems if problem.code == "unknown_key_read"]


def tale(prompt: str = "write", output: str = "{{poem}}", top: str = "") -> str:
    return TALE.format(prompt=prompt, output=output, top=top)


@pytest.mark.parametrize("slip", ["peom", "poen", "poems", "pom", "opem"])
def test_a_misspelt_key_of_an_end_nodes_output_is_told_with_the_key_that_is_meant(slip: str) -> None:
    (problem,) = told(tale(output=f"{{{{{slip}}}}}"))
    assert (problem.severity, problem.node, problem.key, problem.line) == ("warning", "done", "nodes.done.output", 6)
    assert has_message(problem.hint, "protocol.problems.suggestion", name="poem")


def test_a_misspelt_key_is_an_error_when_strict() -> None:
    text = tale(output="{{peom}}")
    assert [problem.severity for problem in told(text, strict=True)] == ["error"]
    assert check_text(text, "graph.yaml", strict=True)[0] is None


@pytest.mark.parametrize(
    "node",
    [
        'llm, prompt: "{{zebra}}"',
        'llm, prompt: p, instructions: "{{zebra}}"',
        'llm, prompt: p, state_updates: {k: "{{zebra.stripes[0]}}"}',
        'llm, prompt: p, state_updates: {k: {raw: "{{zebra}}"}}',
        'agent, agent: x, prompt: "{{zebra}}"',
        'agent, agent: x, prompt: p, inputs: {k: "{{zebra}}"}',
        'approval, question: "{{zebra}}", options: [o], routes: {o: e}, on_other: e',
        'input, question: "{{zebra}}"',
        'input, question: q, default: "{{zebra}}"',
        'rag, documents: [d.md], query: "{{zebra}}", state_updates: {k: "{{output.context}}"}',
        'map, over: "{{zebra}}", as: one, branch: b, collect_into: all',
        'map, over: "{{initial_prompt}}", as: one, branch: b, collect_into: all, max_concurrency: "{{zebra}}"',
    ],
)
def test_a_key_that_nothing_writes_is_told_wherever_a_template_stands(node: str) -> None:
    following = "" if node.startswith("approval") else ", next: e"
    nodes = f"  a: {{type: {node}{following}}}\n  b: {{type: llm, prompt: '{{{{one}}}}'}}\n  e: {{type: end}}\n"
    (problem,) = [each for each in told(f"name: g\nstart: a\nnodes:\n{nodes}") if "zebra" in each.message]
    assert has_message(problem.message, "engine.graph.node_checks.check_keys", key="zebra")


@pytest.mark.parametrize(
    "top",
    ["initial_state: {zebra: 1}", "reducers: {zebra: append}"],
)
def test_a_key_that_the_file_seeds_or_reduces_is_known(top: str) -> None:
    assert told(tale(output="{{zebra}}", top=top)) == []


def test_what_a_script_may_print_is_not_told(tmp_path: Path) -> None:
    assert told(SCRIPTED % "zebra", tmp_path) == []


def test_a_near_miss_is_told_beside_scripts_too(tmp_path: Path) -> None:
    assert [problem.hint for problem in told(SCRIPTED % "peom", tmp_path)] == ["did you mean 'poem'?"]


@pytest.mark.parametrize("file", ["look.py", "helper.sh"])
def test_a_near_miss_that_a_script_or_a_helper_beside_it_names_is_no_slip(tmp_path: Path, file: str) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "look.py").write_text("print('{}')\n")
    (scripts / file).write_text("echo '{\"poems\": 1}'\n")
    assert told(SCRIPTED % "poems", tmp_path) == []


def test_nothing_is_certain_where_a_node_could_not_be_read() -> None:
    text = tale(output="{{zebra}}") + "  odd: {type: lllm, prompt: p}\n"
    assert told(text) == []
    assert errors_in(check_text(text, "graph.yaml")[1])


@pytest.mark.parametrize(
    ("found", "known", "near"),
    [
        ("peom", ["poem"], "poem"),
        ("form", ["from"], "from"),
        ("ab", ["ba"], None),
        ("x1", ["x2"], None),
        ("cat", ["dog", "cart"], "cart"),
        ("review_result", ["reveiw_results"], "reveiw_results"),
        ("plan", ["zebra"], None),
    ],
)
def test_a_slip_of_the_pen_is_one_letter_or_two_that_changed_places(
    found: str, known: list[str], near: str | None
) -> None:
    assert slip_of(found, known) == near


@pytest.mark.parametrize("token", ["{{arr|length}}", "{{ arr | join(', ') }}", "{{arr.map(x)}}", "{{arr + 1}}"])
def test_a_filter_on_a_known_key_is_an_error(token: str) -> None:
    text = f"""
name: g
initial_state: {{arr: [1]}}
start: a
nodes:
  a: {{type: llm, prompt: "A {token}", next: d}}
  d: {{type: end, output: ok}}
"""
    _, problems = check_text(text, "g.yaml")
    assert [(problem.code, problem.line) for problem in problems if problem.severity == "error"] == [
        ("template_filter", 6)
    ]
    _, problems = check_text(text.replace("arr:", "other:"), "g.yaml")
    assert [problem for problem in problems if problem.severity == "error"] == []


@pytest.mark.parametrize(
    "token", ["{{arr == 1}}", "{{arr - 1}}", "{{arr, b}}", "{{arr and b}}", "{{arr=1}}", "{{arr > 0}}"]
)
def test_an_expression_that_begins_with_a_known_key_is_a_warning(token: str) -> None:
    text = f"""
name: g
initial_state: {{arr: [1]}}
start: a
nodes:
  a: {{type: llm, prompt: "A {token}", next: d}}
  d: {{type: end, output: ok}}
"""
    _, problems = check_text(text, "g.yaml")
    assert [(problem.code, problem.line) for problem in problems] == [("template_expression", 6)]
    _, problems = check_text(text.replace("arr: [1]", "other: 1"), "g.yaml")
    assert [problem.code for problem in problems] == []


def test_keys_of_any_script_that_a_script_prints_are_no_slips(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text('print(\'{"my-key": 1, "größe": 2, "नाम": 3}\')')
    text = """
name: g
initial_state: {my-kex: 1, grösse: 1, नामा: 1}
start: s
nodes:
  s: {type: script, script: s.py, next: a}
  a: {type: llm, prompt: "{{my-key}} {{größe}} {{नाम}}", next: d}
  d: {type: end, output: ok}
"""
    _, problems = check_text(text, "g.yaml", CheckContext(directory=tmp_path))
    assert [problem.code for problem in problems] == []
