"""`callboard.testing`, as a user's own tests use it: pytest in a process of its own, in a project of theirs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels
from support.starter import forked

AGENT = """
name: greeter
instructions: "Greet whoever is named."
global_tools: [execute_command]
"""

TEST = """
import asyncio, callboard, pytest, trio

def test_greeting(cassette):
    outcome = cassette.run("agents/greeter", "Ann", yes=True)
    assert outcome.output == "hello Ann"
    assert cassette.run("agents/greeter", "Bob", yes=True).output == "hello Bob"

@pytest.mark.parametrize("name", ["Cy/1", "Di"])
def test_each(cassette, name):
    async def main():
        return await cassette.run_async("agents/greeter", name, yes=True)
    assert trio.run(main).output == f"hello {name}"

def test_under_asyncio(cassette):
    async def main():
        return await cassette.run_async("agents/greeter", "Eve", yes=True)
    assert asyncio.run(main()).output == "hello Eve"

@pytest.mark.trio
async def test_under_pytest_trio(cassette):
    outcome = await cassette.run_async("agents/greeter", "Flo", yes=True)
    assert outcome.output == "hello Flo"

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_under_anyio(cassette, anyio_backend):
    outcome = await cassette.run_async("agents/greeter", "Gus", yes=True)
    assert outcome.output == "hello Gus"

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_in_a_root(cassette, anyio_backend):
    async with callboard.Root() as root:
        for name in ("Hal", "Ida"):
            outcome = await cassette.run_async("agents/greeter", name, yes=True, root=root)
            assert outcome.output == f"hello {name}"
"""


class Project:
    """A project of a user's, with an agent and tests."""

    def __init__(self, home: Path, models: FakeModels) -> None:
        self.home = home
        self.models = models
        self.config = models.config_dir(home / "config")
        (home / "agents" / "greeter").mkdir(parents=True)
        self.agent("Greet whoever is named.")
        (home / "tests").mkdir()
        (home / "conftest.py").write_text('pytest_plugins = ["callboard.testing"]\n')
        (home / "tests" / "test_greeter.py").write_text(TEST)
        (home / "run_tests.py").write_text("import sys, pytest\nsys.exit(pytest.main())\n")

    def agent(self, instructions: str) -> None:
        text = AGENT.replace("Greet whoever is named.", instructions)
        (self.home / "agents" / "greeter" / "config.yaml").write_text(text)

    async def test(self, *words: str) -> tuple[int, str]:
        program = [*forked(self.home / "run_tests.py"), "-q", "-p", "no:cacheprovider", *words]
        environ = {**os.environ, "CALLBOARD_CONFIG_DIR": str(self.config), "XDG_STATE_HOME": str(self.home / "state")}
        environ.pop("PYTEST_ADDOPTS", None)
        environ["PYTEST_PLUGINS"] = "pytest_trio.plugin,anyio.pytest_plugin"  # what the project's tests need
        done = await trio.run_process(
            program, cwd=self.home, env=environ, check=False, capture_stdout=True, stderr=subprocess.STDOUT
        )
        return done.returncode, done.stdout.decode()


@pytest.fixture
def project(tmp_path: Path, fake_model: FakeModels) -> Project:
    fake_model.answer_with(lambda request: f"hello {request.prompt}")
    return Project(tmp_path, fake_model)


async def test_a_test_is_recorded_once_and_needs_no_model_from_then_on(project: Project) -> None:
    code, out = await project.test()
    assert code == 1
    assert "there is no cassette" in out
    assert "pytest --cassettes=once records it" in out
    code, out = await project.test("--cassettes=once")
    assert code == 0, out
    there = sorted(path.name for path in (project.home / "tests" / "cassettes" / "test_greeter").iterdir())
    assert there == [
        f"test_{name}.jsonl"
        for name in (
            *("each_Cy_1", "each_Di", "greeting-2", "greeting"),
            *("in_a_root_asyncio-2", "in_a_root_asyncio", "in_a_root_trio-2", "in_a_root_trio"),
            *("under_anyio_asyncio", "under_anyio_trio", "under_asyncio", "under_pytest_trio"),
        )
    ]
    asked = len(project.models.requests)
    (project.config / "config.yaml").unlink()
    code, out = await project.test()
    assert code == 0, out
    assert len(project.models.requests) == asked


async def test_a_changed_agent_fails_its_test_with_the_difference_until_it_is_recorded_anew(project: Project) -> None:
    await project.test("--cassettes=record")
    project.agent("Greet them twice.")
    code, out = await project.test("-k", "greeting")
    assert code == 1
    assert "outcome" in out
    code, out = await project.test("-k", "greeting", "--cassettes=loose")
    assert code == 0, out
    asked = len(project.models.requests)
    code, out = await project.test("-k", "greeting", "--cassettes=record")
    assert code == 0, out
    assert len(project.models.requests) == asked + 2
    assert "Greet them twice." in (project.home / "tests/cassettes/test_greeter/test_greeting.jsonl").read_text()
