"""Every agent, graph, role, macro, skill and configuration that Loki and its successor ship: read, and agents run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import trio
from corpus.loki_directory import FAMILIES, failed, installed, obliging, project
from corpus.strangers import WORKS, Family, Seen, attempts, cannot, check, corpus, needs
from support.answering_person import Person
from support.fake_models import FakeModels
from support.tiny_weights import put_weights

import callboard
from callboard.actors.io.settings import load_settings
from callboard.actors.work.mcp.files import load_mcp
from callboard.protocol.errors import CallboardError, ConfigError
from callboard.protocol.events import Event
from callboard.protocol.kernel.questions import Question
from callboard.protocol.macro import read_macro
from callboard.protocol.problems import errors_in
from callboard.protocol.role import read_role

AGENT_FILES = ("config.yaml", "graph.yaml")
DIALECTS = ("standard", "loki")

EXAMPLES = {"config.agent.example.yaml": "config.yaml", "graph.example.yaml": "graph.yaml"}
"""At the root of a checkout, and what they are examples of."""

NAMED = ("missing_script", "missing_agent", "unknown_agent", "missing_documents", "unknown_tool", "missing_tools_file")
"""Problems of an example that names files which its readers are to write."""


def agents(directory: Path) -> Iterator[Path]:
    for name in AGENT_FILES:
        yield from directory.glob(f"assets/agents/*/{name}")


def every_agent(directory: Path, *whats: str) -> Iterable[tuple[str, str]]:
    return ((str(file.relative_to(directory)), what) for file in agents(directory) for what in whats)


def validations(directory: Path) -> Iterator[tuple[str, str]]:
    whats = ["validate", "validate loki"]
    yield from every_agent(directory, *whats)
    yield from ((name, what) for name in EXAMPLES for what in whats)


def runs(directory: Path) -> Iterable[tuple[str, str]]:
    return every_agent(directory, "run", "run loki")


def others(directory: Path) -> Iterator[tuple[str, str]]:
    patterns = ("assets/functions/mcp.json", "assets/roles/*.md", "assets/macros/*.yaml", "assets/skills/*/SKILL.md")
    names = ("config.example.yaml", "config.macro.example.yaml", "config.role.example.md")
    for pattern in (*patterns, *names):
        yield from ((str(file.relative_to(directory)), "read") for file in directory.glob(pattern))


def cases(find: Callable[[Path], Iterable[tuple[str, str]]], kind: str) -> list[tuple[Family, str, str]]:
    return [(family, file, what) for family in FAMILIES for file, what in attempts(family, find, what=kind)]


def dialect(what: str) -> str:
    return what.partition(" ")[2] or "standard"


# --- validating -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "file", "what"), cases(validations, "validate"))
def test_a_shipped_agent_has_no_errors(tmp_path: Path, family: Family, file: str, what: str) -> None:
    directory = corpus(family)
    config = installed(directory / "assets", tmp_path / "config")
    target = config / "agents" / Path(file).parent.name
    if file in EXAMPLES:
        target = config / "agents" / "example-graph-agent"
        target.mkdir()
        shutil.copy(directory / file, target / EXAMPLES[file])
    try:
        problems = callboard.validate(target, config_dir=config, compat=dialect(what))
    except CallboardError as error:
        return check(family, file, what, failed(str(error)))
    errors = errors_in(problems)
    seen: Seen = WORKS
    if errors and file in EXAMPLES and {error.code for error in errors} <= {*NAMED}:
        seen = needs("the files that the example names")
    elif errors:
        seen = cannot("; ".join(f"{error.code}: {error.message}" for error in errors))
    return check(family, file, what, seen)


# --- running --------------------------------------------------------------------------------------------------


def first_option(question: Question) -> str:
    """What a person says who agrees to everything."""
    return question.options[0] if question.options else "yes" if question.kind == "confirm" else "Fine."


@pytest.mark.parametrize(("family", "file", "what"), cases(runs, "run"))
async def test_a_shipped_agent_runs_to_its_end(
    fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, family: Family, file: str, what: str
) -> None:
    config = installed(corpus(family) / "assets", fake_model.config_dir(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    put_weights(monkeypatch, tmp_path / "cache", ("flour", "cake", "research"))
    here = project(tmp_path / "project")
    name = Path(file).parent.name
    given = {"demo": {"username": "ada"}, "sql": {"dsn": "sqlite::memory:"}}.get(name, {})
    fake_model.answer_with(obliging)
    crossed: list[str] = []

    def on_event(event: Event) -> None:
        if event.kind == "run.warning" and event.data.code == "node_failed":
            crossed.append(event.data.message)

    async with callboard.Root(config_dir=config) as root:
        with root.questions.attach(Person(root, first_option)), trio.fail_after(100):
            outcome = await callboard.run(
                name,
                "Bake a cake.",
                root=root,
                yes=True,
                cwd=here,
                variables=given,
                compat=dialect(what),
                on_event=on_event,
            )
    if outcome.error is not None:
        crossed.append(outcome.error.message)
    seen = WORKS if outcome.output and not crossed else failed("; ".join(crossed) or "it says nothing")
    check(family, file, what, seen)


# --- what is not an agent -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "file", "what"), cases(others, "read"))
def test_any_other_file_is_read_or_refused(tmp_path: Path, family: Family, file: str, what: str) -> None:
    source = corpus(family) / file
    check(family, file, what, _read(source, tmp_path))


def _read(source: Path, config: Path) -> Seen:
    if source.name == "mcp.json":
        shutil.copy(source, config / "mcp.json")
        found = load_mcp(config)
        wrong = [*map(str, errors_in(found.problems)), *found.broken.values()]
        return cannot("; ".join(wrong)) if wrong or not found.servers else WORKS
    if source.name == "config.example.yaml":
        shutil.copy(source, config / "config.yaml")
        try:
            load_settings(config)
        except ConfigError as error:
            return failed(str(error))
        return WORKS
    kind = next(kind for kind in ("skill", "role", "macro") if kind in str(source).lower())
    if kind != "skill":
        read = read_role if kind == "role" else read_macro
        wrong = [str(problem) for problem in errors_in(read(source.read_text(), source.name, source.stem)[1])]
        return cannot("; ".join(wrong)) if wrong else WORKS
    # Nothing reads these yet; naming one as a target is refused in words, and never a crash.
    copied = shutil.copy(source, config / source.name)
    try:
        refused = bool(errors_in(callboard.validate(copied, config_dir=config)))
    except CallboardError:
        refused = True
    return cannot(f"{kind}s are not there yet") if refused else WORKS
