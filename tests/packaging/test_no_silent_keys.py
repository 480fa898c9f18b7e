"""Every key that a reader accepts is read by the program at run time, or told as one without effect.

`attribute_reads.Probe` says which fields are read; `protocol.schema` marks those that are told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from msgspec import inspect

from callboard.protocol import agent, graph, knowledge
from callboard.protocol.agent import read_agent
from callboard.protocol.mcp import config as mcp
from callboard.protocol.schema import no_effect, why_without_effect
from callboard.protocol.settings import WITHOUT_EFFECT, Settings, api, read_settings, vault, without_effect
from callboard.protocol.settings import model as settings
from callboard.protocol.settings import read as settings_reader
from callboard.protocol.workflow import model as workflow

from .attribute_reads import ANY, Probe

ROOT = Path(__file__).parents[2]
TOP_LEVEL = ("actors", "cli", "supervisors", "protocol")
AT_NO_RUN = re.compile(
    r"/cli/loki/info\.py$|_checks\.py$|/validate\.py$|/schema\.py$|/library/agents/|/workflow/convert\.py$|/protocol/.*/?read\.py$|/settings/idle\.py$"
)
"""Modules that look at files without running them: what only these read has no effect."""

MODULES = (agent, graph, knowledge, mcp, settings, api, vault, workflow)

FOR_PEOPLE = {"version", "description", "organization", "initial_instruction", "args"}
"""What a file says to those who read it, or to front ends of other programs; docs say so."""

BY_NAME = {
    f"Mem0Store.{name}": "actors/engine/workflow/memory/stores.py"
    for name in ("org_id", "project_id", "user_id", "agent_id")
}
"""Fields that a module asks for by their names (`getattr`), and the module."""


@cache
def probe() -> Probe:
    files = [file for folder in TOP_LEVEL for file in sorted((ROOT / folder).rglob("*.py"))]
    return Probe([file for file in files if not AT_NO_RUN.search(file.as_posix())])


def structs(modules: tuple[ModuleType, ...] = MODULES) -> Iterator[type[msgspec.Struct]]:
    for module in modules:
        for cls in vars(module).values():
            if isinstance(cls, type) and issubclass(cls, msgspec.Struct) and cls.__module__ == module.__name__:
                yield cls


def family(cls: type[msgspec.Struct]) -> set[str]:
    """The names of a class, of those above it and of those below."""
    below = {each for each in structs() if issubclass(each, cls)}
    above = {each for each in cls.__mro__ if issubclass(each, msgspec.Struct) and each is not msgspec.Struct}
    return {each.__name__ for each in above | below}


def fields() -> list[tuple[type[msgspec.Struct], inspect.Field]]:
    found = []
    for cls in structs():
        info = inspect.type_info(cls)
        assert isinstance(info, inspect.StructType)
        found += [(cls, field) for field in info.fields]
    return found


def unread(cls: type[msgspec.Struct], name: str) -> bool:
    return not probe().reads_of(name, family(cls)) and f"{cls.__name__}.{name}" not in BY_NAME


def test_every_key_is_read_by_the_program_or_told() -> None:
    silent = [
        f"{cls.__name__}.{field.name}"
        for cls, field in fields()
        if unread(cls, field.name) and why_without_effect(field.type) is None and field.name not in FOR_PEOPLE
    ]
    assert silent == [], "nothing reads these keys at run time: use them, or mark them with `no_effect`"


def test_what_is_asked_for_by_name_is_asked_for() -> None:
    for field, module in BY_NAME.items():
        assert f'"{field.partition(".")[2]}"' in (ROOT / module).read_text(encoding="utf-8")


def test_no_key_that_is_told_is_read() -> None:
    used = [
        f"{cls.__name__}.{field.name}"
        for cls, field in fields()
        if why_without_effect(field.type) is not None and probe().reads.get(field.name, set()) & family(cls)
    ]
    assert used == [], "these keys are read, so they need no mark any more"


def test_every_setting_is_read_by_the_program_or_told() -> None:
    kept = set(settings_reader.KEPT)
    silent = sorted(key for key in kept - set(WITHOUT_EFFECT) if key not in probe().texts)
    assert silent == []
    assert sorted(set(WITHOUT_EFFECT) - kept) == []
    asked = {key for file in (ROOT / "actors", ROOT / "cli") for key in _asked_of_other(file)}
    assert sorted(asked & set(WITHOUT_EFFECT)) == []


def _asked_of_other(folder: Path) -> set[str]:
    text = "".join(file.read_text(encoding="utf-8") for file in folder.rglob("*.py"))
    return set(re.findall(r"other\.get\(\"(\w+)\"\)", text))


def test_the_probe_sees_what_is_read_and_of_what(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "from x import Other as Thing\n\nclass Plan:\n    node: Node\n\n"
        "def play(node: Node, other: Thing, plan: Plan, some) -> None:\n"
        "    node.timeout, other.model, plan.node.prompt, some.loose\n"
        "    for each in make(): each.depth\n\n"
        "def make() -> list[Node]: ...\n"
    )
    found = Probe([tmp_path / "m.py"])
    assert found.reads_of("timeout", {"Node"})
    assert found.reads_of("prompt", {"Node"})
    assert found.reads_of("depth", {"Node"})
    assert not found.reads_of("model", {"Node"})
    assert found.reads_of("model", {"Other"})
    assert not found.reads_of("forgotten", {"Node"})
    assert found.reads["loose"] == {ANY}


class _New(msgspec.Struct):
    wished: bool = False
    told: bool | None = None


def test_a_new_key_that_nothing_reads_is_found() -> None:
    assert unread(_New, "wished_for_by_nothing")
    assert no_effect("why").extra == {"no_effect": "why"}


@pytest.mark.parametrize("line", ["memory: true", "enabled_macros: [a]", "max_concurrent_jobs: 2"])
def test_a_key_without_effect_is_told_with_its_line(line: str) -> None:
    _, (problem,) = read_agent(f"name: a\n{line}\n", "config.yaml")
    key = line.partition(":")[0]
    assert (problem.severity, problem.code, problem.line, problem.key) == ("warning", "ignored_key", 2, key)
    assert f"`{key}` has no effect: " in problem.message


def test_a_key_without_effect_that_is_off_is_not_told() -> None:
    assert read_agent("name: a\nmemory: false\nenabled_macros: []\n", "config.yaml")[1] == []


def test_settings_without_effect_are_told_with_their_lines() -> None:
    text = "model: openai:x\nmax_agent_depth: 3\nsave: false\nmcp_pool: {cleanup_interval_seconds: 5}\n"
    found, problems = read_settings(text, "config.yaml", {})
    assert problems == []  # of which every run tells
    told = without_effect(found, text)
    found_at = [("max_agent_depth", 2), ("mcp_pool.cleanup_interval_seconds", 4)]
    assert [(problem.key, problem.line) for problem in told] == found_at
    assert without_effect(Settings()) == []
