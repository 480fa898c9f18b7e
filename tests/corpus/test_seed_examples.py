"""Every YAML, shell and Python example that the founding documents print: read as what it is an example of."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from corpus.loki_directory import failed
from corpus.seed_examples import Example, examples
from corpus.strangers import WORKS, Seen, attempts, cannot, check, corpus, needs
from support.answering_person import Person

import callboard
from callboard.actors.work.tools.declare.read import read_tools
from callboard.actors.work.tools.registry import ToolOptions
from callboard.protocol.agent import read_agent
from callboard.protocol.graph import draft_graph
from callboard.protocol.kernel.questions import Question
from callboard.protocol.macro import read_macro
from callboard.protocol.problems import Problem, errors_in
from callboard.protocol.settings.read import read_settings
from callboard.protocol.workflow.read import read_workflow
from callboard.supervisors import Actor

LOST = cannot("the page has lost its indentation")

PATTERN = cannot("it is a pattern, with placeholders")
PLACEHOLDER = re.compile(r"^\s*\.\.\.\s*$|: <", re.MULTILINE)

GRAPH_KEYS = {"nodes", "start"}
AGENT_KEYS = {"instructions", "dynamic_instructions", "variables", "documents", "conversation_starters", "global_tools"}
LATER = {
    "services": "it is a file for docker compose",
    "api": "it is a plan of Loki's, not a file of its",
    "mcp_pool": "it is a plan of Loki's, not a file of its",
    "_meta": "it is a plan of Loki's, not a file of its",
}
"""Keys that say what an example is of, where that is nothing we read."""

HELPERS = re.compile(
    r"\b(with_valid\w*|input|confirm|list|checkbox|password|editor|detect_os|get_opener|open_link|guard_\w+|patch_file"
    r"|red|yellow) "
    r"|^(detect_os|get_opener)$",
    re.MULTILINE,
)
"""What an example of prompt-utils calls."""

THEIRS = re.compile(r"^\s*(\$ )?(loki|\.file|>>|eval \"\$\(argc|--\w)|\.file$|<Alt-e>", re.MULTILINE)
THEIR_FILES = re.compile(r"\$ROOT_DIR/utils/guard_path.sh")


def found(directory: Path) -> Iterator[tuple[str, str]]:
    for file in directory.glob("00*.txt"):
        for example in examples(file):
            yield file.name, f"read {example.language} at {example.line}"


@pytest.mark.parametrize(("file", "what"), attempts("seeds", found, what="read"))
async def test_an_example_is_read_as_what_it_is_of(tmp_path: Path, file: str, what: str) -> None:
    line = int(what.rpartition(" ")[2])
    example = next(each for each in examples(corpus("seeds") / file) if each.line == line)
    if example.language == "yaml":
        seen = _yaml(example.text)
    elif example.language == "python":
        seen = _python(example.text, tmp_path)
    else:
        seen = await _shell(example, tmp_path)
    check("seeds", file, what, seen)


# --- YAML -----------------------------------------------------------------------------------------------------


def _yaml(text: str) -> Seen:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        if PLACEHOLDER.search(text) and not _is_flat(text):
            return PATTERN
        return LOST if _is_flat(text) else cannot(f"it is no YAML: {error}")
    if not isinstance(value, dict):
        return LOST if _is_flat(text) else cannot("it is a part of a file")
    problems = _problems_of(value, text)
    if isinstance(problems, Seen):
        return problems
    errors = errors_in(problems)
    if not errors:
        return WORKS
    if PLACEHOLDER.search(text):
        return PATTERN
    if _is_flat(text):
        return LOST
    return cannot("; ".join(f"{error.code}: {error.message}" for error in errors))


def _problems_of(value: dict[str, Any], text: str) -> list[Problem] | Seen:
    """The problems of the example as what its keys say that it is."""
    later = next((why for key, why in LATER.items() if key in value), None)
    if later is not None:
        return cannot(later)
    if "steps" in value:
        return read_macro(text, "macro.yaml", "macro")[1]
    if GRAPH_KEYS & set(value):
        return draft_graph(text, "graph.yaml")[1]
    if "graph" in value:
        return read_workflow(text, "workflow.yaml")[1]
    name, node = next(iter(value.items()))
    if isinstance(node, dict) and ("type" in node or name == "state_updates"):
        if name == "state_updates":
            text, name = f"x:\n  type: end\n{_indented(text)}", "x"
        return draft_graph(f"name: g\nstart: {name}\nnodes:\n{_indented(text)}", "graph.yaml")[1]
    if AGENT_KEYS & set(value) or "can_spawn_agents" in value or "auto_continue" in value or "mcp_servers" in value:
        return read_agent(text, "config.yaml")[1]
    return read_settings(text, "config.yaml", {})[1]


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


def _is_flat(text: str) -> bool:
    """Nothing in it is indented, though it is no flat thing: the page has put all of it to the margin."""
    return not any(line.startswith((" ", "\t")) for line in text.splitlines())


# --- Python ---------------------------------------------------------------------------------------------------


def _python(text: str, home: Path) -> Seen:
    try:
        ast.parse(text)
    except IndentationError:
        return LOST
    except SyntaxError as error:
        return LOST if _is_flat(text) else cannot(f"it is no Python: {error}")
    file = home / "tools.py"
    file.write_text(text)
    errors = errors_in(read_tools(file, agent=True).problems)
    return cannot("; ".join(map(str, errors))) if errors else WORKS


# --- shell ----------------------------------------------------------------------------------------------------


async def _shell(example: Example, home: Path) -> Seen:
    text = example.text
    if THEIRS.search(text):
        return needs("Loki's own program")
    if THEIR_FILES.search(text):
        return needs("files of an older Loki that lie beside it")
    file = home / "tools.sh"
    file.write_text(text)
    checked = subprocess.run(["bash", "-n", str(file)], capture_output=True, text=True)
    if checked.returncode:
        return cannot("it is no bash as the page prints it")
    if "# @" in text:
        if not re.search(r"^\w+\(\) *\{", text, re.MULTILINE):
            return cannot("it is comments alone, and no function")
        errors = errors_in(read_tools(file, agent="# @cmd" in text).problems)
        return cannot("; ".join(error.message for error in errors)) if errors else WORKS
    if HELPERS.search(text) and not text.startswith("#!"):
        return await _helped(text, home)
    return WORKS


async def _helped(text: str, home: Path) -> Seen:
    """What comes of it in a tool, with a person who agrees to everything."""
    (home / "functions" / "tools").mkdir(parents=True)
    (home / "file").write_text("one\n")
    (home / "file.patch").write_text("@@\n-one\n+two\n")
    given = f'path="{home}/file"; target_path="{home}/gone"; _run_sql() {{ :; }}; cd "{home}"'
    body = f'source "$LLM_PROMPT_UTILS_FILE"\n{given}\nxdg-open() {{ :; }}\n{text}\n'
    (home / "functions" / "tools" / "example.sh").write_text(
        f'# @describe An example.\nmain() {{\n{body}echo done >> "$LLM_OUTPUT"\n}}\n'
    )
    async with callboard.Root(config_dir=home) as root:
        options = ToolOptions()
        own = root.registry.home(directory=None, agent=None, values={}, options=options)
        (tool,) = root.registry.named(["example"], own, options)

        async def play(me: Actor) -> Any:
            return await tool.run(me, {})

        with root.questions.attach(Person(root, _agree)):
            end = await root.kernel.spawn(play, link=False).wait()
    if end.error is not None:
        return failed(f"{end.error} {getattr(end.error, 'stderr', '')}")
    return WORKS if end.value == {"output": "done\n"} else cannot(f"it says {end.value}")


def _agree(question: Question) -> Any:
    if question.kind == "checkbox":
        return list(question.options[:2])
    if question.kind == "confirm":
        return "yes"
    return question.options[0] if question.options else "long enough for any of them"
