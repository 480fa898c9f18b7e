"""What is written is true: the flags, the kinds of events, the first graph, the examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import get_args

import click
import msgspec
import pytest
import trio
from support.fake_models import FakeModels
from support.starter import CALLBOARD, forked

from callboard import __all__ as public
from callboard.cli import main
from callboard.protocol.control.resources import ActorKind, RunInfo
from callboard.protocol.kernel.questions import Question, QuestionKind

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))

import chat_tables  # noqa: E402 - as the one below
import events_table  # noqa: E402 - a script beside this file, found through the line above


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command with the name of its section in docs/cli.md."""
    context = click.Context(main.cli)
    for name in main.COMMANDS:
        command = main.cli.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            for sub in command.commands.values():
                yield name, sub


def flags(option: click.Parameter) -> list[str]:
    """Its flags, those that say no included."""
    return [*option.opts, *option.secondary_opts]


@pytest.mark.parametrize(
    ("section", "flag"),
    sorted({(name, flag) for name, command in commands() for option in command.params for flag in flags(option)}),
)
def test_every_flag_is_in_its_section_of_the_cli_page(section: str, flag: str) -> None:
    if flag.startswith("-") and flag != "-C":  # short for --config-dir, wherever that is
        text = re.split(r"^## ", read("docs/cli.md"), flags=re.MULTILINE)
        (described,) = [part for part in text if part.startswith(f"{section}\n")]
        assert re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", described)


def test_the_cli_page_lists_every_command_in_the_order_of_the_help() -> None:
    text = read("docs/cli.md").partition("**TARGET**")[0]
    listed = re.findall(r"^\| \[`([a-z-]+)`\]\(#[a-z-]+\) \|", text, flags=re.MULTILINE)
    assert listed == list(main.COMMANDS)


def test_the_cli_page_names_no_flag_that_does_not_exist() -> None:
    known = {flag for _name, command in commands() for option in command.params for flag in flags(option)}
    known |= {"--help", "--version"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", read("docs/cli.md"))) <= known


def test_the_events_page_describes_the_events_as_they_are() -> None:
    text = read("docs/events.md")
    assert text == events_table.page(text), "docs/events.md is behind protocol/events: run `make docs`"


@pytest.mark.parametrize("struct", [RunInfo, Question])
def test_the_control_page_names_every_field_of_runs_and_questions(struct: type[msgspec.Struct]) -> None:
    page = read("docs/control.md")
    rows = " ".join(line for line in page.splitlines() if line.startswith("| `"))
    assert [field for field in struct.__struct_fields__ if f"`{field}`" not in rows] == []


def test_the_control_page_names_every_kind_and_state_of_actors_and_questions() -> None:
    page = read("docs/control.md")
    words = {*get_args(ActorKind), *get_args(QuestionKind), "starting", "running", "waiting", "stopping"}
    assert [word for word in words if f"`{word}`" not in page] == []


def test_the_page_of_the_chats_commands_has_them_as_they_are() -> None:
    text = read("docs/chat-commands.md")
    assert text == chat_tables.page(text), "docs/chat-commands.md is behind the table of commands: run `make docs`"


def test_the_python_page_names_everything_public() -> None:
    page = read("docs/python-api.md")
    assert [name for name in public if not re.search(rf"callboard\.{name}\b|`{name}`", page)] == []


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", read(page))
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


def test_the_changelog_has_something_to_tell() -> None:
    assert re.search(r"^## \[Unreleased\]\n\n### \w+\n\n- ", read("CHANGELOG.md"), re.MULTILINE)


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    for page in ("README.md", "CONTRIBUTING.md", ".ci/run"):
        assert set(re.findall(r"^\s*make ([a-z-]+)", read(page), re.MULTILINE)) <= targets


async def test_the_first_graph_of_the_readme_runs(fake_model: FakeModels, tmp_path: Path) -> None:
    (yaml,) = re.findall(r"```yaml\n(.*?)```", read("README.md"), re.DOTALL)
    assert len(yaml.splitlines()) <= 10
    (tmp_path / "haiku.yaml").write_text(yaml)
    fake_model.script("white on the roofs")
    ended = await _run([*CALLBOARD, "run", "--strict", "haiku.yaml", "the first snow"], fake_model, tmp_path)
    assert ended.stdout == b"white on the roofs\n", ended.stderr.decode()
    assert fake_model.requests[0].prompt == "Write a haiku about the first snow."


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
async def test_the_examples_run(fake_model: FakeModels, tmp_path: Path, example: str) -> None:
    fake_model.answer_with(lambda request: '{"text": "Join us."}' if "Invite" in request.prompt else "fine")
    arguments = ["3"] if example == "many_runs.py" else []
    ended = await _run([*forked(ROOT / "examples" / example), *arguments], fake_model, tmp_path)
    assert ended.returncode == 0, ended.stderr.decode()
    expected = {
        "asyncio_program.py": b"Oslo: fine\n",
        "many_runs.py": b"  3 done short: 3 words",
        "typed_agents.py": b"order 7 is shipped",
        "watch_events.py": b"the bicycle\n- fine\n- fine\n- fine\n",
        "answer_questions.py": b"run 2: Sent: Join us.",
    }
    assert expected[example] in ended.stdout


async def _run(arguments: list[str], model: FakeModels, home: Path) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "CALLBOARD_CONFIG_DIR": str(model.config_dir(home / "config"))}
    run = partial(trio.run_process, capture_stdout=True, capture_stderr=True, check=False)
    return await run(arguments, env=environment, cwd=home)


def test_no_page_holds_what_a_merge_has_left() -> None:
    marks = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    assert ROOT / "docs" / "architecture.md" in pages
    assert [str(page) for page in pages if marks.search(page.read_text(encoding="utf-8"))] == []
