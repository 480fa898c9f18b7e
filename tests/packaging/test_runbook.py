"""docs/security.md and docs/runbook.md: what they name is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import click
import pytest

from callboard.actors.front.access.access_control import FIXED
from callboard.actors.front.access.audit import Action, AuditLine
from callboard.actors.front.http.routes import find_route
from callboard.cli import main
from callboard.protocol.control.caller import SCOPES
from callboard.protocol.settings.api import ApiLimits, ApiSettings, Auth, Cors

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {name: (DOCS / name).read_text(encoding="utf-8") for name in ("security.md", "runbook.md")}


def commands_in(text: str) -> set[str]:
    """`callboard x [y]` as the page has it."""
    return set(re.findall(r"(?:^|[`\s(;|])callboard ([a-z]+(?: [a-z]+)?)(?=[\s`;)>]|$)", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_is_named_exists(page: str) -> None:
    named = [words.split() for words in commands_in(PAGES[page])]
    named = [words for words in named if words[0] in main.COMMANDS or words[0] not in ("config", "runs")]
    assert named
    context = click.Context(main.cli)
    for words in named:
        command = main.cli.get_command(context, words[0])
        assert command is not None, words
        if isinstance(command, click.Group) and len(words) > 1:
            assert words[1] in command.commands, words


@pytest.mark.parametrize("page", PAGES)
def test_every_flag_of_a_command_that_is_named_exists(page: str) -> None:
    context = click.Context(main.cli)
    for name, sub, rest in re.findall(r"callboard (\w+)((?: \w+)?)( [^`\n]*)", PAGES[page]):
        command = main.cli.get_command(context, name)
        if isinstance(command, click.Group):
            command = command.commands.get(sub.strip()) or command
        if command is not None:
            known = {flag for option in command.params for flag in option.opts}
            assert set(re.findall(r"(?<= )--?[a-z][a-z-]*", rest.partition(">")[0].partition("#")[0])) <= known, name


def test_every_route_that_is_named_exists() -> None:
    routes = re.findall(r"(?:-X (POST|DELETE))?(?: -H \"[^\"]*\")? \$URL(/[a-z0-9/{}-]+)", PAGES["runbook.md"])
    assert len(routes) >= 4
    for method, path in routes:
        assert find_route(method or "GET", path) is not None, path


def test_the_tables_of_the_security_page_are_whole() -> None:
    page = PAGES["security.md"]
    assert [scope for scope in SCOPES if f"`{scope}`" not in page] == []
    assert [action for action in get_args(Action) if f"`{action}`" not in page] == []
    assert [field for field in AuditLine.__struct_fields__ if f"`{field}`" not in page] == []


def test_every_setting_is_described_with_its_default_and_whether_a_reload_takes_it() -> None:
    rows = re.findall(r"^\| (`[a-z_.`, *]+?) \| ([^|]*)\|", PAGES["security.md"], re.MULTILINE)
    told = {key: "*" in names for names, _ in rows for key in re.findall(r"`([a-z_.]+)`", names)}
    nested = {"auth": Auth, "cors": Cors, "limits": ApiLimits}
    there = {
        f"{key}.{inner}" if key in nested else key
        for key in ApiSettings.__struct_fields__
        for inner in (nested[key].__struct_fields__ if key in nested else [""])
    }
    assert there - set(told) == set()
    fixed = {*FIXED, "limits.max_body_bytes", "limits.max_frame_bytes", "enabled"}
    assert {key for key in there if told[key] is False} <= fixed | {"limits.max_frame_bytes"}
    assert {key for key in fixed - {"log_format"} if told[key]} <= {"log_format"}


def test_every_metric_that_the_runbook_goes_by_is_told() -> None:
    source = (Path(__file__).parents[2] / "actors" / "front" / "metrics.py").read_text()
    source = source.replace("{gen_ai}", "gen_ai_client_operation").replace("{agents}", "gen_ai_invoke_agent")
    named = set(
        re.findall(
            r"`((?!leeway)[a-z_]+(?:_seconds|_total|_flight|_max|_duration_seconds))(?:\{\w+\})?`", PAGES["runbook.md"]
        )
    )
    assert len(named) >= 6
    said = [name for name in named if f'"{name}"' in source or f'"{name.removesuffix("_total")}"' in source]
    assert named - set(said) == set()
