"""What a program sees of `callboard`: names, signatures, old names, types."""

from __future__ import annotations

import ast
import inspect
import pydoc
import subprocess
import sys
import textwrap
import typing
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

import callboard
from callboard import testing
from callboard.actors.runs.run import NEW_NAMES, Options
from callboard.protocol.errors import UsageError

GRAPH = "name: g\nstart: e\nnodes:\n  e: {type: end, output: 'said {{initial_prompt}}'}\n"


def test_a_program_sees_what_is_public_and_nothing_else() -> None:
    names = {name for name in dir(callboard) if not name.startswith("_")}
    assert names == {*callboard.__all__, "chat", "errors", "events"}
    assert len(dir(callboard)) == len(set(dir(callboard)))


@pytest.mark.parametrize("name", ["events", "errors", "chat"])
def test_public_modules_have_what_they_name(name: str) -> None:
    module = import_module(f"callboard.{name}")
    assert getattr(callboard, name) is module
    assert [each for each in module.__all__ if not hasattr(module, each)] == []
    assert module.__doc__


def test_every_error_is_in_the_public_module() -> None:
    def below(kind: type) -> set[type]:
        return {kind, *(each for child in kind.__subclasses__() for each in below(child))}

    ours = {each for each in below(callboard.CallboardError) if each.__module__ == "callboard.protocol.errors"}
    assert {each.__name__ for each in ours} <= set(callboard.errors.__all__)


@pytest.mark.parametrize("function", [callboard.run, callboard.run_sync, callboard.Root.run, callboard.Root.stream])
def test_help_shows_every_option_with_its_type(function: object) -> None:
    parameters = inspect.signature(function).parameters  # type: ignore[arg-type]  # one of four functions
    options = set(Options.__annotations__) - set(NEW_NAMES.values())
    if function in (callboard.Root.run, callboard.Root.stream):
        options -= {"root", "config_dir"}
    assert options <= set(parameters)
    assert [name for name in options if parameters[name].annotation is inspect.Parameter.empty] == []


@pytest.mark.parametrize(("new", "old", "value"), [("approve_all", "yes", True), ("extra_dirs", "roots", ["."])])
def test_old_names_of_options_work_and_warn(new: str, old: str, value: object, tmp_path: Path) -> None:
    graph = tmp_path / "g.yaml"
    graph.write_text(GRAPH)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert callboard.run_sync(graph, "hi", config_dir=tmp_path, **{old: value}).output == "said hi"  # type: ignore[arg-type]  # by name
    assert [each.category for each in caught] == [DeprecationWarning]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert callboard.run_sync(graph, "hi", config_dir=tmp_path, **{new: value}).output == "said hi"  # type: ignore[arg-type]  # by name
    with pytest.raises(UsageError):
        callboard.run_sync(graph, "hi", config_dir=tmp_path, **{new: value, old: value})  # type: ignore[arg-type]  # by name


def deprecated(read: Callable[[], object]) -> object:
    """Return what `read` returns, which has to warn once."""
    with pytest.warns(DeprecationWarning, match="old name") as caught:
        value = read()
    assert len(caught) == 1
    assert caught[0].filename == __file__
    return value


@pytest.mark.parametrize(
    ("old", "new"), [("priced", "cost_complete"), ("leftover", "pending"), ("unsaved", "save_error")]
)
def test_old_names_of_outcomes_work_and_warn(old: str, new: str) -> None:
    outcome = callboard.Outcome[Any](run_id="run-1", status="done", cost_complete=False, pending={}, save_error="full")
    assert deprecated(lambda: getattr(outcome, old)) == getattr(outcome, new)
    assert outcome.to_wire()[old] == getattr(outcome, new)
    assert new not in outcome.to_wire()


async def test_old_names_of_roots_work_and_warn(tmp_path: Path) -> None:
    assert isinstance(deprecated(lambda: callboard.Root(config_dir=tmp_path, patient=True)), callboard.Root)
    assert isinstance(deprecated(lambda: callboard.Root(config_dir=tmp_path, serving=True)), callboard.Root)
    async with callboard.Root(config_dir=tmp_path, wait_for_front_end=True, keep_servers=True) as root:
        desk: Any = deprecated(lambda: root.questions)
        assert desk.patient
        assert desk.open == root.inbox.open == ()


async def test_an_inbox_shows_questions_to_front_ends(tmp_path: Path) -> None:
    seen: list[str] = []

    class Web:
        name = "web"

        def on_question(self, question: callboard.Question) -> None:
            seen.append(question.text)
            root.inbox.answer(question.id, "Ada", by=self.name)

        def on_question_closed(self, question_id: str, by: str) -> None:
            seen.append(by)

    file = tmp_path / "g.yaml"
    file.write_text(
        "name: g\nstart: n\nnodes:\n"
        "  n: {type: input, question: Who?, state_updates: {who: '{{input}}'}, next: e}\n"
        "  e: {type: end, output: '{{who}}'}\n"
    )
    async with callboard.Root(config_dir=tmp_path) as root:
        with root.inbox.attach(Web()):
            assert (await root.run(file)).output == "Ada"
        with pytest.raises(UsageError), root.inbox.attach(object()):  # type: ignore[arg-type]  # wrong on purpose
            pass
    assert seen == ["Who?", "web"]


PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (callboard, callboard.chat, callboard.errors, callboard.events, testing)
    for name in module.__all__
}
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}
FUNCTIONS = {
    **{name: value for name, value in PUBLIC.items() if inspect.isfunction(value)},
    **{
        f"{name}.{method}": value
        for name, kind in CLASSES.items()
        for method, value in inspect.getmembers(kind, inspect.isfunction)
        if not method.startswith("_") or method == "__init__"
    },
    **{
        f"{name}.{attribute}": value.fget
        for name, kind in CLASSES.items()
        for attribute, value in inspect.getmembers(kind, lambda each: isinstance(each, property))
        if not attribute.startswith("_")
    },
}

ROOT = Path(__file__).parents[3]
DEFERRING = [
    path.relative_to(ROOT)
    for folder in ("actors", "protocol", "supervisors", "cli")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "\n    defer(" in path.read_text()
]
"""Files whose annotations name types that are imported when they are read."""


@pytest.mark.parametrize("name", PUBLIC)
def test_help_shows_every_public_name(name: str) -> None:
    assert pydoc.render_doc(PUBLIC[name])


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_types_of_annotations_can_be_read(name: str) -> None:
    typing.get_type_hints(FUNCTIONS.get(name, CLASSES.get(name)))


def test_functions_and_structs_have_signatures() -> None:
    structs = [kind for kind in CLASSES.values() if issubclass(kind, msgspec.Struct)]
    assert len(structs) > 50
    values: list[Callable[..., object]] = [*FUNCTIONS.values(), *structs]
    for value in (*values, callboard.Root, callboard.Graph, callboard.Context):
        inspect.signature(value)
    parameters = inspect.signature(callboard.Agent).parameters
    assert list(parameters["model"].annotation.__args__) == [str, callboard.Model, type(None)]


@pytest.mark.parametrize("path", DEFERRING, ids=str)
def test_deferred_types_exist(path: Path) -> None:
    package = ".".join(("callboard", *path.parent.parts))
    calls = [each for each in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(each, ast.Call)]
    (table,) = [each.args[1] for each in calls if isinstance(each.func, ast.Name) and each.func.id == "defer"]
    for module, names in ast.literal_eval(table).items():
        for name in names.split(", "):
            assert hasattr(import_module(module, package), name.partition(" as ")[0]), (module, name)


def test_annotations_import_nothing_before_they_are_read() -> None:
    program = """
        import sys, typing, callboard
        service = "callboard.actors.work.knowledge.service"
        knowledge = callboard.Root.knowledge
        assert service not in sys.modules
        typing.get_type_hints(knowledge.fget)
        assert service in sys.modules
    """
    types = Path(__file__).parents[3] / ".types"
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, cwd=types)
