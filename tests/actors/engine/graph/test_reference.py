"""The reference graph: what it says when it is right, and what is said when it is not.

Must show 3 of the graph issue: exactly one warning as it stands, none once its route is declared, and for every
mutated copy an error under `strict` that names line, key and fix.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.graph_checks import check_text

from callboard.actors.engine.graph.compat import LOKI, STANDARD, Compat
from callboard.actors.engine.graph.findings import CheckContext, agents_in
from callboard.protocol.problems import Problem, errors_in

AGENTS = Path(__file__).parents[3] / "fixtures" / "agents"
REFERENCE = (AGENTS / "reference" / "graph.yaml").read_text()
ROUTED = REFERENCE.replace("    fallback: summarize\n", "    fallback: summarize\n    routes: [deep_dive]\n", 1)

MODELS = {"anthropic:claude-sonnet-4-6", "anthropic:claude-haiku-4-5"}
AROUND = CheckContext(
    directory=AGENTS / "reference",
    agents=agents_in(AGENTS),
    models=lambda model: None if model in MODELS else "see the `clients` in config.yaml",
)


def check(text: str, compat: Compat = STANDARD, *, strict: bool = False) -> list[Problem]:
    return check_text(text, "graph.yaml", AROUND, compat=compat, strict=strict)[1]


@pytest.mark.parametrize("compat", [STANDARD, LOKI], ids=["standard", "loki"])
def test_the_reference_has_exactly_one_warning(compat: Compat) -> None:
    (problem,) = check(REFERENCE, compat)
    assert (problem.severity, problem.node, problem.code) == ("warning", "deep_dive", "unreachable")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("compat", [STANDARD, LOKI], ids=["standard", "loki"])
def test_with_its_route_declared_it_has_none(compat: Compat, strict: bool) -> None:
    assert check(ROUTED, compat, strict=strict) == []


# What is replaced, by what, the key that is at fault, and what the fix has to say.
MUTATIONS: dict[str, tuple[str, str, str, str]] = {
    "version of tomorrow": ('version: "1.0"', 'version: "3.0"', "version", '"1.0"'),
    "version is a number": ('version: "1.0"', "version: 1.0", "version", "quotes"),
    "empty name": ("name: reference", 'name: ""', "name", "name: my-agent"),
    "no name": ("name: reference", "nme: reference", "name", "`name`"),
    "misspelled top key": ("global_tools:", "globel_tools:", "globel_tools", "global_tools"),
    "misspelled setting": ("max_loop_iterations:", "max_loop_iteration:", "settings.max_loop_iteration", "max_loop_"),
    "timeout is text": ("  timeout: 600\n  log", '  timeout: "600"\n  log', "settings.timeout", "remove the quotes"),
    "bool of YAML 1.1": ("log_state_snapshots: true", "log_state_snapshots: yes",
        "settings.log_state_snapshots", "true"),
    "several starts": ("start: triage", "start: [triage, review]", "start", "`next: [a, b]`"),
    "start is no node": ("start: triage", "start: triagee", "start", "did you mean 'triage'?"),
    "unknown type": ("type: approval", "type: aproval", "nodes.review.type", "did you mean 'approval'?"),
    "no type": ("    type: input\n", "", "nodes.refine.type", "node types"),
    "id is not the key": ("id: retrieve", "id: retreive", "nodes.retrieve.id", "id: retrieve"),
    "next to nowhere": ("next: decide", "next: decied", "nodes.retrieve.next", "did you mean 'decide'?"),
    "fallback to nowhere": ("fallback: review", "fallback: reveiw",
        "nodes.summarize.fallback", "did you mean 'review'?"),
    "route to nowhere": ('"yes": finalize', '"yes": finalise', "nodes.review.routes.yes", "did you mean 'finalize'?"),
    "on_other to nowhere": ("on_other: refine", "on_other: refines",
        "nodes.review.on_other", "did you mean 'refine'?"),
    "routes to nowhere": ("routes: [deep_dive]", "routes: [deepdive]",
        "nodes.decide.routes[0]", "did you mean 'deep_dive'?"),
    "no on_other": ("    on_other: refine\n", "", "nodes.review.on_other", "`on_other`"),
    "option without route": ('      "no": rejected_end\n', "", "nodes.review.options[1]", 'add "no"'),
    "route without option": ('      - "no"\n', "", "nodes.review.routes.no", "list it in `options`"),
    "no prompt": ('    prompt: "Summarize what', '    promt: "Summarize what', "nodes.summarize.prompt", "`prompt`"),
    "key of another type": ('    type: end\n    output: "The', '    type: end\n    tools: []\n    output: "The',
        "nodes.rejected_end.tools", "remove it"),
    "output is a number": ('output: "The answer about {{topic}} was turned down."', "output: 5",
        "nodes.rejected_end.output", 'quotes around it: "5"'),
    "tools are text": ("    tools: []", "    tools: web_search_loki", "nodes.triage.tools", "[web_search_loki]"),
    "unknown tool": ("- web_search_loki.sh\n      - mcp", "- web_serch_loki.sh\n      - mcp",
        "nodes.summarize.tools[0]", "did you mean 'web_search_loki'?"),
    "unknown server": ("- mcp:pubmed-search", "- mcp:pubmed-serch", "nodes.summarize.tools[1]", "pubmed-search"),
    "unknown model": ("claude-haiku-4-5", "claude-haiku-9", "nodes.summarize.model", "config.yaml"),
    "unknown agent": ("agent: deep-researcher", "agent: deep-searcher",
        "nodes.deep_dive.agent", "name another agent"),
    "no such script": ("scripts/decide.py", "scripts/decid.py",
        "nodes.decide.script", "did you mean 'scripts/decide.py'?"),
    "unknown extension": ("scripts/decide.py", "scripts/decide.rb", "nodes.decide.script", ".py"),
    "no documents": ("      - ./knowledge/\n      - https://example.com/reference\n", "",
        "nodes.retrieve.documents", "`documents`"),
    "rag result unused": (
        '    state_updates:\n      context: "{{output.context}}"\n      sources: "{{output.sources}}"\n', "",
        "nodes.retrieve", "state_updates"),
    "bad validation": ("len(input) > 0", "length > 0", "nodes.refine.validation", "len(input) > 0"),
    "a cycle": ("    next: retrieve\n", "    next: triage\n", "nodes.triage.next", "_next"),
    "question in a fan-out": ("    next: review\n\n  review", "    next: [review, refine]\n\n  review",
        "nodes.summarize.next[0]", "after the join"),
    "a key twice": ("    temperature: 0.3\n", "    temperature: 0.3\n    temperature: 0.4\n",
        "nodes.summarize.temperature", "remove or rename"),
    "negative timeout": ("    timeout: 120\n", "    timeout: -120\n", "nodes.retrieve.timeout", "greater than 0"),
    "half an attempt": ("max_attempts: 2", "max_attempts: 1.5", "nodes.summarize.max_attempts", "a whole number"),
    "unknown reducer": ("start: triage", "reducers: {research: apend}\nstart: triage",
        "reducers.research", "did you mean 'append'?"),
    "zero at once": ("  validate_before_run: true", "  max_concurrency: 0", "settings.max_concurrency", "8"),
    "template misspelled": ("about {{topic}}; use", "about {{topik}}; use",
        "nodes.summarize.prompt", "did you mean 'topic'?"),
    "template with spaces": ("about {{topic}}; use", "about {{ topic }}; use",
        "nodes.summarize.prompt", "remove the spaces"),
    "nowhere to go": ("      final_answer: \"{{output}}\"\n    next: done\n", "      final_answer: \"{{output}}\"\n",
        "nodes.finalize", "add `next:`"),
    "a tab": ("    type: rag", "\ttype: rag", "nodes.retrieve.id", "replace tabs by spaces"),
}  # fmt: skip


MISSING = {
    "no name",
    "no type",
    "no on_other",
    "option without route",
    "route without option",
    "no prompt",
    "no documents",
    "rag result unused",
    "nowhere to go",
}
"""What is not there has no line of its own; the problem stands at what should hold it."""


@pytest.mark.parametrize("name", list(MUTATIONS))
def test_every_mutation_is_an_error_with_line_key_and_fix(name: str) -> None:
    old, new, key, fix = MUTATIONS[name]
    assert ROUTED.count(old) == 1, "the mutation has to be about one place"
    text = ROUTED.replace(old, new)
    line = ROUTED[: ROUTED.index(old)].count("\n") + 1
    problems = errors_in(check(text, strict=True))
    assert problems, "no error was found"
    problem = next((problem for problem in problems if (problem.key or "") == key), None)
    assert problem is not None, [str(problem) for problem in problems]
    assert problem.line > 0
    assert problem.column > 0
    assert fix in f"{problem.expected} {problem.hint}"
    if name not in MISSING:
        assert line <= problem.line <= line + new.count("\n"), f"{problem} is not about line {line}"
    assert f"graph.yaml:{problem.line}:{problem.column}: error: " in str(problem)


def test_there_are_at_least_thirty_of_them() -> None:
    assert len(MUTATIONS) >= 30
