"""For the tests of programs and agents: a pytest fixture that records a run once and plays it from then on.

In conftest.py:

    pytest_plugins = ["callboard.testing"]

In a test:

    def test_greeting(cassette):
        outcome = cassette.run("agents/greeter", "Ann")
        assert outcome.output == "Hello, Ann!"

The cassette lies beside the test's file, `cassettes/<module>/<test>.jsonl`, and is to be committed with it. How it is
used says `pytest --cassettes`:

    replay    it is played, without a network and without processes; a test without one fails (the default)
    once      it is played if it is there, else recorded
    record    it is recorded anew
    live      there is none: the run is played in the world
    loose     as replay, but requests are found by their place, whatever they say
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, get_args

import pytest

from .actors.runs.root import Root, current, in_asyncio
from .actors.runs.run import Options, run, run_sync

if TYPE_CHECKING:
    from .actors.runs.run import Target
    from .protocol.outcome import Outcome

Mode: TypeAlias = Literal["replay", "once", "record", "live", "loose"]

DIRECTORY = "cassettes"


class Cassettes:
    """The cassettes of one test; see the module.

    Args:
        file: of the first; those after it have a number.
        mode: see the module.
    """

    def __init__(self, file: Path, mode: Mode) -> None:
        self.file = file
        self.mode = mode
        self._runs = 0

    def run(self, target: Target, prompt: str = "", **options: Unpack[Options]) -> Outcome:
        """As `callboard.run_sync`, by a cassette."""
        return run_sync(target, prompt, **(options | self.options()))

    async def run_async(self, target: Target, prompt: str = "", **options: Unpack[Options]) -> Outcome:
        """As `callboard.run`, by a cassette; under asyncio too, with a root of its own outside of a root's block."""
        options |= self.options()
        if options.get("root") is not None or current.get() is not None or not in_asyncio():
            return await run(target, prompt, **options)
        async with Root(config_dir=options.pop("config_dir", None)):
            return await run(target, prompt, **options)

    def options(self) -> Options:
        """The arguments of `callboard.run` for the next run of the test.

        Raises:
            pytest.fail.Exception: there is no cassette for it.
        """
        self._runs += 1
        file = self.file if self._runs == 1 else self.file.with_stem(f"{self.file.stem}-{self._runs}")
        if self.mode == "live":
            return {}
        if self.mode == "record" or (self.mode == "once" and not file.exists()):
            return {"record": file}
        if not file.exists():
            pytest.fail(f"there is no cassette {file}: pytest --cassettes=once records it", pytrace=False)
        return {"replay": file, "loose": self.mode == "loose"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option `--cassettes`."""
    parser.getgroup("callboard").addoption(
        "--cassettes",
        choices=get_args(Mode),
        default="replay",
        help="callboard: how the fixture `cassette` uses its cassettes (default: replay)",
    )


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Cassettes:
    """Records the runs of a test once, and plays them from then on."""
    mode: Any = request.config.getoption("--cassettes")
    name = re.sub(r"[^\w.-]+", "_", request.node.name).strip("_")
    return Cassettes(request.path.parent / DIRECTORY / request.path.stem / f"{name}.jsonl", mode)
