"""For the tests of programs and agents: models without a network, assertions on calls, and cassettes in pytest.

    from callboard.testing import Calls, ScriptedModel, call

    async def test_the_clerk_looks_it_up(root):
        calls = Calls()
        model = ScriptedModel([call("look_up", key="a"), "It is 7."])
        outcome = await root.run(clerk, "What is a?", tools=[look_up], model=model, on_event=calls)
        assert outcome.final == "It is 7."
        calls.assert_called("look_up", key="a")

As a plugin of pytest it has a fixture that records a run once and plays it from then on. In conftest.py:

    pytest_plugins = ["callboard.testing"]

In a test:

    def test_greeting(cassette):
        outcome = cassette.run("agents/greeter", "Ann")
        assert outcome.output == "Hello, Ann!"

    async def test_greeting_too(cassette):  # under pytest-trio, pytest-asyncio or anyio
        outcome = await cassette.run_async("agents/greeter", "Ann")

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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, get_args

from .actors.runs.root import Root, current, in_asyncio
from .actors.runs.run import Options, run, run_sync
from .actors.runs.stand_in import FunctionModel, ScriptedModel, call
from .protocol.deferred_types import defer
from .protocol.events import Event, ToolFinished, ToolStarted
from .protocol.json_values import NotJson, decode

if TYPE_CHECKING:
    import pytest

    from .actors.runs.run import Target
    from .protocol.outcome import Outcome
else:
    defer(globals(), {".actors.runs.run": "Target", ".protocol.outcome": "Outcome"})

__all__ = ["Call", "Calls", "Cassettes", "FunctionModel", "ScriptedModel", "call"]

Mode: TypeAlias = Literal["replay", "once", "record", "live", "loose"]

DIRECTORY = "cassettes"


# --- calls ------------------------------------------------------------------------------------------------------------


@dataclass
class Call:
    """A call of a tool.

    Attributes:
        tool: its name.
        arguments: what it was called with; the text of longer ones, beyond 2,000 characters.
        result: what came of it, as text, the beginning and the end of a longer one.
        error: what went wrong, None if nothing; it begins with the class of an exception.
    """

    tool: str
    arguments: Any
    result: str = ""
    error: str | None = None


class Calls:
    """The calls of tools of runs: pass it as `on_event`.

    Attributes:
        all: the calls, in the order in which they began.
    """

    def __init__(self) -> None:
        self.all: list[Call] = []
        self._open: dict[tuple[str, str, str], Call] = {}

    def __call__(self, event: Event) -> None:
        """Hear an event."""
        data, key = event.data, (event.run, event.actor, event.id)
        if isinstance(data, ToolStarted):
            self._open[key] = Call(data.tool, _decoded(data.arguments))
            self.all.append(self._open[key])
        elif isinstance(data, ToolFinished) and (begun := self._open.pop(key, None)) is not None:
            begun.result, begun.error = data.result, data.error

    @property
    def names(self) -> list[str]:
        """The names of the tools that were called, in order."""
        return [each.tool for each in self.all]

    def of(self, tool: str) -> list[Call]:
        """The calls of one tool."""
        return [each for each in self.all if each.tool == tool]

    def assert_called(self, tool: str, /, *, times: int | None = None, **arguments: Any) -> Call:
        """Check that a tool was called with these arguments, and perhaps others; return the first such call.

        Args:
            times: how often; None for at least once.

        Raises:
            AssertionError: it was not; the text lists all calls.
        """
        found = [each for each in self.of(tool) if _has(each.arguments, arguments)]
        if (times is None and not found) or (times is not None and len(found) != times):
            wanted = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            often = "" if times is None else f" {times} times"
            raise AssertionError(f"{tool}({wanted}) was not called{often}; the calls were:\n{self}")
        return found[0] if found else Call(tool, arguments)

    def assert_not_called(self, tool: str, /) -> None:
        """Check that a tool was not called.

        Raises:
            AssertionError: it was.
        """
        if self.of(tool):
            raise AssertionError(f"{tool} was called; the calls were:\n{self}")

    def __str__(self) -> str:
        return (
            "\n".join(f"  {each.tool}({each.arguments}) -> {each.error or each.result}" for each in self.all)
            or "  none"
        )


def _decoded(text: str) -> Any:
    try:
        return decode(text)
    except NotJson:
        return text


def _has(given: Any, wanted: dict[str, Any]) -> bool:
    if not wanted:
        return True
    return isinstance(given, dict) and all(name in given and given[name] == value for name, value in wanted.items())


# --- cassettes --------------------------------------------------------------------------------------------------------


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

    def run(self, target: Target, prompt: str = "", *, result: Any = None, **options: Unpack[Options]) -> Outcome:
        """As `callboard.run_sync`, by a cassette."""
        return run_sync(target, prompt, result=result, **(options | self.options()))

    async def run_async(
        self, target: Target, prompt: str = "", *, result: Any = None, **options: Unpack[Options]
    ) -> Outcome:
        """As `callboard.run`, by a cassette; under asyncio too, with a root of its own outside of a root's block."""
        options |= self.options()
        if options.get("root") is not None or current.get() is not None or not in_asyncio():
            return await run(target, prompt, result=result, **options)
        async with Root(config_dir=options.pop("config_dir", None)):
            return await run(target, prompt, result=result, **options)

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
            import pytest

            pytest.fail(f"there is no cassette {file}: pytest --cassettes=once records it", pytrace=False)
        return {"replay": file, "loose": self.mode == "loose"}


try:
    import pytest
except ModuleNotFoundError:  # models and calls need none
    pass
else:
    __all__ += ["cassette", "pytest_addoption"]

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
