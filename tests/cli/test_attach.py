"""`callboard attach`: a run of a server as `callboard run` would show it, whoever else is there and whatever breaks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio
from support.control_server import ControlServer
from support.fake_models import Reply
from support.waiting import PATIENCE

from callboard.protocol.control.caller import LOCAL

Callboard = Callable[..., "tuple[int, str, str]"]

GATE = """
start: gate
nodes:
  gate:
    type: approval
    question: "{{initial_prompt}}?"
    options: ["yes", "no"]
    routes: {"yes": end, "no": end}
    on_other: end
    state_updates: {choice: "{{choice}}"}
  end: {type: end, output: "said {{choice}}"}
"""

TALK = """
start: say
nodes:
  say: {type: llm, prompt: "{{initial_prompt}}", state_updates: {said: "{{output}}"}, next: end}
  end: {type: end, output: "{{said}}"}
"""


@contextmanager
def once_attached(control_server: ControlServer, act: Callable[[], object]) -> Iterator[None]:
    """Do something in a thread as soon as a client is there; whatever goes wrong in it fails the test."""
    failed: list[BaseException] = []

    async def connected() -> None:
        with trio.fail_after(PATIENCE):
            while not control_server.connections:
                await trio.sleep(0.005)

    def play() -> None:
        try:
            control_server.call(connected)
            act()
        except BaseException as error:  # noqa: BLE001 - told by the test
            failed.append(error)

    thread = threading.Thread(target=play)
    thread.start()
    yield
    thread.join()
    assert not failed, failed


def test_a_run_that_is_over_is_told_and_its_result_printed(callboard: Callboard, control_server: ControlServer) -> None:
    control_server.agent("talk", TALK)
    control_server.models.script("hello")
    run = control_server.ended(control_server.start("talk").run).run
    code, out, err = callboard("attach", run)
    assert (code, out) == (0, "hello\n")
    assert "graph: talk (start: say)" in err
    assert "say done in" in err
    assert callboard("attach", run.removeprefix("run-")[:6], "-q") == (0, "hello\n", "")


def test_a_run_under_way_is_followed_to_its_end(callboard: Callboard, control_server: ControlServer) -> None:
    control_server.agent("gate", GATE)
    run = control_server.start("gate", "Go").run
    question = control_server.asked(run)
    with once_attached(control_server, lambda: control_server.answer(question, "yes")):
        code, out, err = callboard("attach", run)
    assert (code, out) == (0, "said yes\n")
    assert "gate asks: Go?" in err
    assert "answered by local: yes" in err


def test_the_exit_code_and_the_error_are_those_of_the_run(callboard: Callboard, control_server: ControlServer) -> None:
    control_server.agent("talk", TALK)
    control_server.models.script(Reply(status=401, error="no such key"))
    run = control_server.ended(control_server.start("talk").run)
    code, out, err = callboard("attach", run.run)
    assert (code, out) == (run.exit_code, "")
    assert code == 3
    assert err.splitlines()[-1].startswith("callboard: at node 'say': ")


def test_json_is_the_outcome_as_run_prints_it(callboard: Callboard, control_server: ControlServer) -> None:
    control_server.agent("talk", TALK)
    control_server.models.script("hello")
    run = control_server.ended(control_server.start("talk").run).run
    code, out, _err = callboard("attach", run, "-o", "json", "-q")
    outcome = json.loads(out)
    assert code == 0
    assert (outcome["schema_version"], outcome["run_id"], outcome["status"]) == (1, run, "done")
    assert outcome["output"] == "hello"


def test_stream_json_is_every_event_as_it_was_logged(callboard: Callboard, control_server: ControlServer) -> None:
    control_server.agent("talk", TALK)
    control_server.models.script("hello")
    run = control_server.ended(control_server.start("talk").run).run
    code, out, err = callboard("attach", run, "-o", "stream-json", "-q")
    assert (code, err) == (0, "")
    logged = control_server.call(control_server.hub.events, LOCAL, run, 0, 1000)
    assert out.splitlines() == [event.data.decode() for event in logged]


def test_a_run_that_somebody_cancels_ends_with_130(callboard: Callboard, control_server: ControlServer) -> None:
    control_server.agent("gate", GATE)
    run = control_server.start("gate", "Go").run
    control_server.asked(run)
    with once_attached(control_server, lambda: control_server.call(control_server.hub.cancel, LOCAL, run)):
        code, out, err = callboard("attach", run)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == f"callboard: {run} was cancelled"


def test_a_run_that_is_not_there_is_told_as_json_too(callboard: Callboard, control_server: ControlServer) -> None:
    code, out, err = callboard("attach", "run-zz", "-o", "json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "not_found")
    assert "run-zz" in err


def test_hostile_text_reaches_the_terminal_as_what_it_is(callboard: Callboard, control_server: ControlServer) -> None:
    control_server.agent("gate", GATE)
    run = control_server.start("gate", "\x1b]0;pwned\x07\x9b2J\u202etext").run
    question = control_server.asked(run)
    with once_attached(control_server, lambda: control_server.answer(question, "yes")):
        _code, _out, err = callboard("attach", run)
    assert "\\x1b]0;pwned\\x07\\x9b2J\\u202etext" in err
    assert not set(err) & {"\x1b", "\x07", "\x9b", "\u202e"}
