"""Answers at a terminal: which texts are drawn, what stays for the end, and what the settings say of how they look."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from support.messages import says

from callboard.cli.render.answer import AnswerDisplay, AnswerResult, AnswerStyle, style_of
from callboard.cli.render.markdown.rows import CLEAR_BELOW, DONE, SHOW
from callboard.cli.render.markdown.theme import Theme
from callboard.cli.render.progress import ProgressDisplay
from callboard.protocol import events as ev
from callboard.protocol.errors import ConfigError
from callboard.protocol.events import Event, EventData
from callboard.protocol.outcome import Outcome

HOME = "/run-1/helper"
Recorder = Callable[[EventData, str], Event]
CONTROL = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]|\r")


class Beside(ProgressDisplay):
    """Another display, which notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_event(self, event: Event) -> None:
        self.told.append(event.kind)

    def note(self, text: str) -> None:
        self.told.append(text)

    @contextmanager
    def aside(self) -> Iterator[None]:
        self.told.append("(aside")
        yield
        self.told.append("aside)")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def out(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


@pytest.fixture
def beside() -> Beside:
    return Beside()


@pytest.fixture
def answer(out: Terminal, beside: Beside) -> AnswerDisplay:
    answer = AnswerDisplay(beside, out, streams=True)
    answer.begin(AnswerStyle(Theme()))
    return answer


def started(dialect: str = "agent") -> ev.RunStarted:
    return ev.RunStarted(target="helper", name="helper", dialect=dialect)


def hear(answer: AnswerDisplay, event: Recorder, *data: EventData, actor: str = HOME) -> None:
    for each in data:
        answer.on_event(event(each, actor))


def agent(**how: object) -> ev.AgentStarted:
    return ev.AgentStarted(agent="helper", **how)


def shown(out: Terminal) -> str:
    return CONTROL.sub("", out.getvalue())


def response() -> ev.LlmResponse:
    return ev.LlmResponse(model="m", seconds=1.0)


def ended(output: str, status: str = "done") -> Outcome:
    return Outcome(run_id="run-1", status=status, output=output, exit_code=0)


def test_what_the_agent_says_is_drawn_and_not_printed_again(
    answer: AnswerDisplay, event: Recorder, out: Terminal, beside: Beside
) -> None:
    hear(answer, event, started(), agent(), ev.LlmDelta(text="Some "), ev.LlmDelta(text="*words*"), response())
    assert shown(out) == "Some words\n"
    assert beside.told[2:6] == ["llm.delta", "(aside", "llm.delta", "aside)"]
    AnswerResult(out, answer).finish(ended("Some *words*"))
    assert shown(out) == "Some words\n"


def test_what_could_not_be_drawn_is_printed_at_the_end(answer: AnswerDisplay, event: Recorder, out: Terminal) -> None:
    def gone(text: str) -> int:
        raise OSError(5, "Input/output error")

    hear(answer, event, started(), agent(), ev.LlmDelta(text="Some *words*"))
    out.write = gone
    hear(answer, event, response())
    assert not answer.was_drawn("Some *words*")
    with pytest.raises(OSError, match="Input/output"):
        AnswerResult(out, answer).finish(ended("Some *words*"))
    del out.write
    AnswerResult(out, answer).finish(ended("Some *words*"))
    assert shown(out) == "Some words\n"


def test_every_turn_is_drawn(answer: AnswerDisplay, event: Recorder, out: Terminal) -> None:
    hear(
        answer,
        event,
        started(),
        agent(),
        ev.LlmDelta(text="First."),
        response(),
        ev.LlmDelta(text="Second."),
        response(),
    )
    AnswerResult(out, answer).finish(ended("First.\nSecond."))
    assert shown(out) == "First.\nSecond.\n"


def test_what_children_and_nodes_say_is_not_the_answer(answer: AnswerDisplay, event: Recorder, out: Terminal) -> None:
    hear(answer, event, started(), agent())
    hear(answer, event, agent(child="agent_x", depth=1), ev.LlmDelta(text="aside"), actor=f"{HOME}/children/x")
    assert shown(out) == ""
    hear(answer, event, started("graph"), agent(), ev.LlmDelta(text="node"), actor="/run-1/graph/node")
    assert shown(out) == ""


def test_the_result_of_a_graph_is_rendered_at_the_end(answer: AnswerDisplay, event: Recorder, out: Terminal) -> None:
    hear(answer, event, started("graph"), ev.LlmDelta(text="x"))
    AnswerResult(out, answer).finish(ended("- *one*\n- two"))
    assert shown(out) == "• one\n• two\n"


@pytest.mark.parametrize("output", ['{"a": "*b*"}', '[\n  "*b*"\n]', "  {}"])
def test_json_stays_as_it_is(answer: AnswerDisplay, out: Terminal, output: str) -> None:
    AnswerResult(out, answer).finish(ended(output))
    assert out.getvalue() == output + "\n"


def test_what_was_said_before_a_retry_is_no_part_of_the_answer(
    answer: AnswerDisplay, event: Recorder, out: Terminal
) -> None:
    retry = ev.LlmRetry(model="m", attempt=1, wait=0.1, error="cut")
    hear(answer, event, started(), agent(), ev.LlmDelta(text="Hal"), retry, ev.LlmDelta(text="Half."), response())
    AnswerResult(out, answer).finish(ended("Half."))
    assert shown(out) == "Hal\nHalf.\n"


def test_a_turn_without_words_draws_nothing(
    answer: AnswerDisplay, event: Recorder, out: Terminal, beside: Beside
) -> None:
    hear(answer, event, started(), agent(), ev.LlmDelta(text="\n\n"), response())
    assert out.getvalue() == ""
    assert "(aside" not in beside.told


def test_a_run_that_ends_in_the_middle_leaves_what_was_said(
    answer: AnswerDisplay, event: Recorder, out: Terminal
) -> None:
    with answer:
        hear(answer, event, started(), agent(), ev.LlmDelta(text="Half a sen"))
    assert shown(out) == "Half a sen\n"
    assert sys.stderr is not None


def test_nothing_is_drawn_before_the_end_if_whole_answers_are_wanted(
    out: Terminal, beside: Beside, event: Recorder
) -> None:
    answer = AnswerDisplay(beside, out, streams=False)
    answer.begin(AnswerStyle(Theme()))
    hear(answer, event, started(), agent(), ev.LlmDelta(text="*x*"), response())
    assert out.getvalue() == ""
    AnswerResult(out, answer).finish(ended("*x*"))
    assert shown(out) == "x\n"


async def test_pictures_are_drawn_while_the_model_speaks(
    answer: AnswerDisplay, event: Recorder, out: Terminal, autojump_clock: trio.abc.Clock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer.animate)
        hear(answer, event, started(), agent(), ev.LlmDelta(text="One "))
        await trio.sleep(0.1)
        assert shown(out) == "One"
        with answer.aside():
            assert out.getvalue().endswith(CLEAR_BELOW + SHOW + DONE)
            hear(answer, event, ev.LlmDelta(text="two "))
            await trio.sleep(0.5)
            assert "two" not in shown(out)
        await trio.sleep(0.1)
        hear(answer, event, ev.LlmDelta(text="three"), response())
        hear(answer, event, ev.LlmDelta(text="Next"))
        await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert shown(out).endswith("One two three\nNext")


@pytest.mark.parametrize(
    ("said", "wrap"), [(None, 0), ("auto", 0), ("no", None), (False, None), ("100", 100), (" 80 ", 80), ("", 0)]
)
def test_wrap_is_read_as_loki_has_it(out: Terminal, said: object, wrap: int | None) -> None:
    assert style_of({"wrap": said}, Path("/nowhere"), out, {"TERM": "xterm"}).wrap == wrap


@pytest.mark.parametrize("said", ["0", "-5", "wide", "8.5", "²"])
def test_a_wrap_that_is_none_says_what_is_expected(out: Terminal, said: str) -> None:
    with pytest.raises(ConfigError, match=says("cli.render.answer._wrap")):
        style_of({"wrap": said}, Path("/nowhere"), out, {})


@pytest.mark.parametrize(
    ("settings", "environ", "plain"),
    [
        ({}, {}, False),
        ({"highlight": True, "wrap_code": True}, {}, False),
        ({"highlight": False}, {}, True),
        ({}, {"NO_COLOR": "1"}, True),
        ({}, {"NO_COLOR": ""}, False),
    ],
)
def test_answers_are_plain_where_no_colours_are_wanted(
    out: Terminal, settings: dict[str, object], environ: dict[str, str], plain: bool
) -> None:
    look = style_of(settings, Path("/nowhere"), out, environ)
    assert (look.theme is None) is plain
    assert look.wrap_code is (bool(settings.get("wrap_code")) and not plain)


def test_a_dumb_terminal_gets_plain_answers(out: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert style_of({}, Path("/nowhere"), out, {}).theme is None
