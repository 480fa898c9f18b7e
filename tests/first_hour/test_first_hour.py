"""The commands that README.md and docs/ print run as they stand, in order, on an empty HOME in a terminal.

README.md's are run in a copy of the checkout with everything real: make builds the environment, the models run here.
For the pages of docs/ a scripted server stands for the provider of OPENAI_API_KEY.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest
from first_hour.pages import ROOT, Command, File, fences, is_synopsis, pages, steps
from first_hour.reader import Reader
from first_hour.scenes import SCENES, Scene
from support.fake_models import FakeModels
from support.postgres import running
from support.starter import STARTER

BIN = Path(sys.executable).parent
UVX = Path(sys.prefix) / "interop/install/bin/uvx"
REAL = ("docs/agents.md", "docs/cli.md")
"""Pages whose `callboard` is the one that is installed, as README.md's is; that of the others is a fork (starter.py).

docs/cli.md's asks whether the terminal is its own.
"""

SAID = "A bridge is held up by its piers."
PORTS = (3400, 8808)
"""Where `callboard serve` and `callboard mcp serve --http` listen unless they are told otherwise."""

REQUIRED = os.environ.get("CALLBOARD_INTEROP") == "required"
SYSTEM = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


pytestmark = pytest.mark.one_worker  # else the others wait for the lock


@pytest.fixture(autouse=True)
def _ports_are_free() -> Iterator[None]:
    # Without the lock, a page would find the port of a page in another run of the tests taken, and be skipped.
    with Path(tempfile.gettempdir(), f"callboard-tests-ports-{os.getuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _skip_if_taken()
        yield


def _skip_if_taken() -> None:
    for port in PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                pytest.skip(f"port {port} of this machine is taken")


def test_every_command_has_a_scene_and_every_row_a_command() -> None:
    for page in pages():
        typed = [step.text for step in steps(page) if isinstance(step, Command) and not is_synopsis(step.text)]
        rows = SCENES.get(page, Scene()).rows
        assert bool(typed) == (page in SCENES), page
        assert [row for row in rows if not any(text.startswith(row) for text in typed)] == [], page


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page for page in SCENES if page != "README.md"])
async def test_what_a_page_promises_its_commands_do(page: str, fake_model: FakeModels, tmp_path: Path) -> None:
    scene = SCENES[page]
    if scene.needs_index and not UVX.exists() and not REQUIRED:
        pytest.skip("`make interop` has not installed install")
    assert (BIN / "callboard").exists(), "the environment of the tests has no `callboard`"
    fake_model.answer_with(lambda request: json.dumps({"text": SAID}) if "response_format" in request.json else SAID)
    programs = [BIN, UVX.parent]
    if page not in REAL:
        (tmp_path / "bin").mkdir()
        STARTER.program(tmp_path / "bin" / "callboard")
        programs.insert(0, tmp_path / "bin")
    environ = {
        **empty_home(tmp_path / "home", *programs),
        "OPENAI_API_KEY": "sk-of-the-first-hour",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{fake_model.port}/v1",
    }
    work = tmp_path / "work"
    work.mkdir()
    contents = dict(scene.files) | {name: fences(page)[number] for name, number in scene.fences.items()}
    for name, content in contents.items():
        path = tmp_path / "home" / name.removeprefix("~/") if name.startswith("~/") else work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    with ExitStack() as stack:
        if scene.needs_postgres:
            environ["CALLBOARD_CLUSTER"] = stack.enter_context(running()).database()
        await read(page, environ, work)


@pytest.mark.skipif(
    not REQUIRED and not UVX.parents[1].with_suffix(".made").exists(),
    reason="`make interop` has not installed install, so the package index may be out of reach",
)
@pytest.mark.soak  # it installs three times, and has models think on all cores
@pytest.mark.timeout(3600)
async def test_the_first_page_is_true_from_a_clone_to_a_server(tmp_path: Path) -> None:
    clone = tmp_path / "callboard"
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)
    python = Path(sys.base_prefix) / "bin"
    environ = empty_home(tmp_path / "home", python) | SCENES["README.md"].environ
    await read("README.md", environ, clone)


async def read(page: str, environ: dict[str, str], work: Path) -> None:
    """Do what the page says."""
    async with AsyncExitStack() as stack:
        reader = Reader(page, SCENES[page], environ, work, stack)
        await reader.set_up()
        for step in steps(page):
            if isinstance(step, File):
                (work / step.name).parent.mkdir(parents=True, exist_ok=True)
                (work / step.name).write_text(step.content, encoding="utf-8")
            elif not is_synopsis(step.text):
                await reader.do(step)


def empty_home(home: Path, *programs: Path) -> dict[str, str]:
    """An environment with an empty HOME; the configuration of the package index stays."""
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
    return {**kept, "HOME": str(home), "PATH": os.pathsep.join((*map(str, programs), *SYSTEM)), "NO_COLOR": "1"}
