"""Pytest plugin: run the collected tests in several forked worker processes.

    pytest --workers 6

The controller collects once, then forks the workers. pytest-xdist starts its workers as new interpreters, and each of
them collects all tests again: 21,000 tests take 7 s of CPU for each worker, 24 s without compiled bytecode. A forked
worker has the collected items already and shares their memory.

Scheduling: tests are cut into units, the tests of one file that need at most `UNIT_SECONDS` together (all of them, if
they are marked `one_worker`: they would wait for each other). The longest units come first, so that no worker is busy
alone at the end. Durations come from the previous run (pytest's cache);
without them, the tiers of the tests (support/tiers.py) decide. A worker always knows its next unit, because pytest
tears down a module's fixtures only when it knows that the next test does not use them.

A worker sends the reports of a test when the test has ended, together with the start of the next one: one message per
test. A report is sent in pytest's own serialised form (the form that xdist uses), or as its times alone if the phase
passed and wrote nothing, which is all that differs between such reports. The terminal summary, `--lf`, `--junitxml` and
other plugins see the run as if the controller had executed it. A worker that dies fails the test that it was executing,
and a new worker continues with the rest.
"""

from __future__ import annotations

import math
import os
import pickle
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest
import trio
from _pytest.config import create_terminal_writer

from support.durations import Durations

UNIT_SECONDS = 3.0

_START = time.monotonic()
_LENGTH = struct.Struct("=I")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("workers", "run tests in forked worker processes")
    group.addoption("--workers", type=int, metavar="N", default=0, help="number of worker processes; 0: none, run here")
    group.addoption(
        "--budget", type=float, metavar="SECONDS", help="end this long after the start; print what was not executed"
    )
    group.addoption(
        "--hangs-after",
        type=float,
        metavar="SECONDS",
        default=8.0,
        help="a test that the budget ends has failed if it has had this and five times its usual duration",
    )


@dataclass
class Worker:
    """A forked worker, as the controller sees it.

    Attributes:
        running: index of the test that is executed, or None between tests.
        since: when that began.
        rest: indexes of the given tests that have not been executed.
        dismissed: it has received an empty unit, and ends after the units that it has.
    """

    number: int
    pid: int
    line: socket.socket
    running: int | None = None
    since: float = 0.0
    rest: deque[int] = field(default_factory=deque)
    dismissed: bool = False
    data: bytearray = field(default_factory=bytearray)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Execute the tests in workers; without `--workers` the usual loop of pytest runs."""
    count = session.config.option.workers
    if count < 1 or session.config.option.collectonly or not session.items or session.testsfailed:
        return None
    Controller(session, count).run()
    return True


class Controller:
    """Forks the workers, sends them units, and passes their reports to pytest. A worker has two units at most."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session = session
        self._config = session.config
        self._count = count
        self._durations = Durations(session.config)
        self._units = deque(units_of(session.items, self._durations, in_order=bool(session.config.option.budget)))
        self._workers: dict[int, Worker] = {}
        self._started = 0
        self._stopping = False
        self._end = _START + self._config.option.budget if self._config.option.budget else math.inf
        self._left_out: list[int] = []

    def run(self) -> None:
        if reporter := self._config.pluginmanager.getplugin("terminalreporter"):
            reporter.showfspath = False  # files are interleaved: a line for each change of file would be thousands
        locate(self._session.items)
        sys.stdout.flush()
        sys.stderr.flush()
        base = self._config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # pytest's own, not public
        try:
            for _ in range(min(self._count, len(self._units))):
                self._fork(base)
            while self._workers and time.monotonic() < self._end:
                lines = {worker.line: worker for worker in self._workers.values()}
                patience = None if self._end == math.inf else max(0.0, self._end - time.monotonic())
                for line in select.select(list(lines), [], [], patience)[0]:
                    self._receive(lines[line], base)
            self._leave_out()
        finally:
            for worker in self._workers.values():
                for process in (*psutil.Process(worker.pid).children(recursive=True), psutil.Process(worker.pid)):
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                os.waitpid(worker.pid, 0)
        if self._left_out:
            files = sorted({self._session.items[index].nodeid.split("::")[0] for index in self._left_out})
            some = ", ".join(files[:8]) + (" ..." if len(files) > 8 else "")
            print(f"\nnot run within the time: {len(self._left_out)} tests in {len(files)} files: {some}")
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _leave_out(self) -> None:
        """Note what is not executed at the end of the budget. A test that hangs, by its last duration, has failed."""
        self._left_out += [index for unit in self._units for index in unit]
        for worker in self._workers.values():
            self._left_out += worker.rest
            if worker.running is None:
                continue
            item, took = self._session.items[worker.running], time.monotonic() - worker.since
            usual = self._durations.of(item)
            if took < self._config.option.hangs_after + 5 * usual:
                self._left_out.append(worker.running)
            else:
                why = f"stopped after {took:.1f} s, at the end of the time (it usually takes {usual:.1f} s)"
                self._fail(item, why)

    def _fork(self, base: Path) -> None:
        ours, theirs = socket.socketpair()
        self._started += 1
        pid = os.fork()
        if not pid:
            for worker in self._workers.values():
                worker.line.close()
            ours.close()
            _work(self._session, theirs, self._started, base)
        theirs.close()
        worker = self._workers[pid] = Worker(self._started, pid, ours)
        for _ in range(2):
            self._give(worker)

    def _give(self, worker: Worker) -> None:
        """Send the worker its next unit, or an empty one when there is none."""
        if worker.dismissed:
            return
        unit = self._units.popleft() if self._units and not self._stopping else []
        worker.dismissed = not unit
        worker.rest.extend(unit)
        with suppress(BrokenPipeError):  # it died; `_receive` finds that out
            send(worker.line, unit)

    def _receive(self, worker: Worker, base: Path) -> None:
        try:
            received = worker.line.recv(1 << 20)
        except ConnectionError:  # the worker was killed while it had unread messages
            received = b""
        worker.data += received
        for messages in messages_in(worker.data):
            for message in messages:
                self._heard(worker, message)
        if not received:
            worker.line.close()
            del self._workers[worker.pid]
            _, status = os.waitpid(worker.pid, 0)
            if worker.rest or status:
                self._died(worker, status, base)

    def _heard(self, worker: Worker, message: dict[str, Any]) -> None:
        hook = self._config.hook
        match message["kind"]:
            case "start":
                worker.running = message["test"]
                worker.since = time.monotonic()
                worker.rest.remove(message["test"])
                item = self._session.items[message["test"]]
                hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            case "report":
                hook.pytest_runtest_logreport(report=self._report_of(message))
                if self._session.shouldfail or self._session.shouldstop:
                    self._stopping = True
                    self._units.clear()
            case "finish":
                item = self._session.items[message["test"]]
                hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
                worker.running = None
            case "unit":
                self._give(worker)
            case "left":
                hook.pytest_worker_left(config=self._config, processes=message["processes"])

    def _report_of(self, message: dict[str, Any]) -> pytest.TestReport:
        if "report" in message:
            hook = self._config.hook
            return hook.pytest_report_from_serializable(config=self._config, data=message["report"])
        when, duration, start, stop = message["passed"]
        item = self._session.items[message["test"]]
        keywords = dict.fromkeys(item.keywords, 1)
        return pytest.TestReport(item.nodeid, item.location, keywords, "passed", None, when, (), duration, start, stop)

    def _died(self, worker: Worker, status: int, base: Path) -> None:
        """Fail the test that a dead worker was executing, and give its other tests to a new one."""
        code = os.waitstatus_to_exitcode(status)
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if worker.running is not None:
            self._fail(self._session.items[worker.running], f"the worker that ran this test died: {how}")
        elif not worker.rest:
            self._session.shouldfail = f"a worker ended with {how} after its last test"
        if worker.rest and not self._stopping:
            self._units.appendleft(list(worker.rest))
            self._fork(base)

    def _fail(self, item: pytest.Item, why: str) -> None:
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        self._config.hook.pytest_runtest_logreport(report=report)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


class Hooks:
    """Hooks of this plugin."""

    def pytest_worker_begins(self, config: pytest.Config, number: int) -> None:
        """Called in a worker before its first test."""

    @pytest.hookspec(firstresult=True)
    def pytest_worker_ends(self, config: pytest.Config) -> list[str] | None:
        """Called in a worker after its last test; returns the processes that its tests left behind."""

    def pytest_worker_left(self, config: pytest.Config, processes: list[str]) -> None:
        """Called in the controller with what `pytest_worker_ends` of a worker returned."""


def units_of(items: list[pytest.Item], durations: Durations, *, in_order: bool = False) -> list[list[int]]:
    """Return the indexes of the tests, in units: the longest unit first, or in the order of the tests."""
    files: dict[Path, list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        files[item.path].append(index)
    units: list[tuple[float, list[int]]] = []
    for indexes in files.values():
        seconds, unit = 0.0, list[int]()
        for index in indexes:
            together = items[index].get_closest_marker("one_worker") is not None
            if unit and not together and seconds + durations.of(items[index]) > UNIT_SECONDS:
                units.append((seconds, unit))
                seconds, unit = 0.0, []
            seconds += durations.of(items[index])
            unit.append(index)
        units.append((seconds, unit))
    if not in_order:
        units.sort(key=lambda each: -each[0])
    return [unit for _, unit in units]


def locate(items: list[pytest.Item]) -> None:
    """Set the location of each test, which pytest would find once per case and in each process, once per function."""
    known: dict[tuple[Any, str], tuple[str, int | None, str]] = {}
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        of = item.parent, item.originalname
        if of not in known:
            path, line, name = item.location
            known[of] = path, line, name.removesuffix(item.name)
        path, line, parents = known[of]
        item.__dict__["location"] = path, line, parents + item.name


def send(line: socket.socket, message: Any) -> None:
    data = pickle.dumps(message)
    line.sendall(_LENGTH.pack(len(data)) + data)


def messages_in(data: bytearray) -> Iterator[Any]:
    """Take the whole messages off the front of `data`."""
    while len(data) >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(data)
        end = _LENGTH.size + length
        if len(data) < end:
            return
        message = pickle.loads(bytes(data[_LENGTH.size : end]))
        del data[:end]
        yield message


# --- in the worker -----------------------------------------------------------------------------------------------


def _work(session: pytest.Session, line: socket.socket, number: int, base: Path) -> NoReturn:
    """Execute units until there are no more, and end the process."""
    code = 3
    try:
        _settle_in(session.config, number, base)
        _execute(session, line)
        left = session.config.hook.pytest_worker_ends(config=session.config)
        send(line, [{"kind": "left", "processes": left or []}])
        code = 0
    except (KeyboardInterrupt, pytest.exit.Exception):
        code = 2
    except BrokenPipeError:  # the controller is gone
        code = 2
    except BaseException:  # noqa: BLE001 - nothing above would print it: the process ends in the next line
        os.write(2, traceback.format_exc().encode())
    finally:
        session.config.pluginmanager.getplugin("capturemanager").stop_global_capturing()
        os._exit(code)


def _settle_in(config: pytest.Config, number: int, base: Path) -> None:
    """Give the worker what it may not share with the others: captured output, and a temporary directory."""
    capture = config.pluginmanager.getplugin("capturemanager")
    # The files behind captured stdout and stderr have one offset for all processes that inherited them.
    capture.stop_global_capturing()
    capture.start_global_capturing()
    directory = base / f"worker-{number}"
    directory.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = directory  # type: ignore[attr-defined] # pytest's own, not public
    config.hook.pytest_worker_begins(config=config, number=number)


class _Reports:
    """Collects the reports of this process for the controller; takes the place of the terminal's plugin.

    Attributes:
        test: index of the test that is executed.
        messages: what has not been sent yet.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.test = -1
        self.messages: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        message: dict[str, Any] = {"kind": "report", "test": self.test}
        if vars(report).keys() == _PASSED and report.passed and not (report.sections or report.user_properties):
            message["passed"] = report.when, report.duration, report.start, report.stop
        else:
            message["report"] = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self.messages.append(message)

    def send(self, line: socket.socket) -> None:
        send(line, self.messages)
        self.messages = []


_PASSED = vars(pytest.TestReport("", ("", None, ""), {}, "passed", None, "call")).keys()
"""Attributes of a report to which no plugin has added one."""


def _execute(session: pytest.Session, line: socket.socket) -> None:
    plugins = session.config.pluginmanager
    plugins.unregister(name="terminalreporter")
    reports = _Reports(session.config)
    plugins.register(reports)
    # pytest-timeout writes stacks through it, and the one of pytest needs the plugin that was just removed.
    vars(session.config)["get_terminal_writer"] = partial(create_terminal_writer, session.config, sys.stderr)
    data = bytearray()
    following = _next_unit(line, data)
    while following:
        unit, following = following, _next_unit(line, data)
        for position, index in enumerate(unit):
            after = unit[position + 1] if position + 1 < len(unit) else (following[0] if following else None)
            item, nextitem = session.items[index], None if after is None else session.items[after]
            reports.test = index
            reports.messages.append({"kind": "start", "test": index})
            reports.send(line)
            # The hook and not `runtestprotocol`: timeouts, warnings and rewritten assertions are wrappers of it.
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            reports.messages.append({"kind": "finish", "test": index})
            if trio.lowlevel.in_trio_run():
                # A timeout was raised by a signal inside trio's wait for events, so trio believes that its loop still
                # runs and refuses every later test. The controller gives the rest to a new worker.
                reports.send(line)
                return
        reports.messages.append({"kind": "unit"})
        reports.send(line)


def _next_unit(line: socket.socket, data: bytearray) -> list[int]:
    while True:
        for message in messages_in(data):
            return list(message)
        received = line.recv(1 << 16)
        if not received:
            raise BrokenPipeError
        data += received
