"""Forked workers (tests/support/workers.py), on small suites of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from support.descendants import is_alive
from support.waiting import PATIENCE, POLL

SUPPORT = Path(__file__).parents[1]


class Suite:
    """A directory of tests, and pytest with workers in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "pytest.ini").write_text("[pytest]\n")

    def start(self, *arguments: str, **files: str) -> subprocess.Popen[str]:
        for name, text in files.items():
            (self.directory / f"test_{name}.py").write_text(text)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "support.workers",
            "-p",
            "no:trio",
            "-p",
            "no:hypothesispytest",
        ]
        return subprocess.Popen(
            [*command, "-v", *arguments],
            cwd=self.directory,
            env={
                **os.environ,
                "PYTHONPATH": str(SUPPORT),
                "PYTHONFAULTHANDLER": "1",
                # At its end pytest deletes what earlier runs left in this place: below /tmp that can be another run of
                # all tests, which takes minutes.
                "PYTEST_DEBUG_TEMPROOT": str(self.directory),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, **files: str) -> tuple[int, str]:
        process = self.start(*arguments, **files)
        try:
            output, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            states = end_with_states(psutil.Process(process.pid))
            output, _ = process.communicate()
            pytest.fail(f"it did not end within {PATIENCE:.0f} s.\n{states}\n{output}")
        return process.returncode, output


def end_with_states(process: psutil.Process) -> str:
    """Abort a process and its descendants; return what each was doing, as the kernel sees it.

    Their Python stacks are in their output, by faulthandler.
    """
    states = []
    for each in [*process.children(recursive=True), process]:
        with suppress(psutil.Error, OSError):
            proc = Path("/proc", str(each.pid))
            waits = proc.joinpath("wchan").read_text()
            states.append(f"{each.pid} {each.status()}, waits in {waits}, {each.cpu_times()}: {each.cmdline()}")
            os.kill(each.pid, signal.SIGABRT)
            os.kill(each.pid, signal.SIGCONT)
            each.wait(5)  # so that the next one does not write between its lines
    return "\n".join(states)


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


def test_every_test_runs_once_and_counts_as_in_one_process(suite: Suite) -> None:
    text = "import pytest\n@pytest.mark.parametrize('n', range(20))\ndef test_it(n):\n    assert n != 7\n"
    skipped = "import pytest\ndef test_skipped():\n    pytest.skip('why')\ndef test_passes():\n    pass\n"
    code, output = suite.run("--workers", "3", "-rs", numbers=text, skipped=skipped)
    assert code == 1
    assert "1 failed, 20 passed, 1 skipped" in output
    assert "test_skipped.py:3: why" in output


def test_a_failure_shows_what_its_own_test_printed(suite: Suite) -> None:
    text = (
        "import pytest\n@pytest.mark.parametrize('n', range(8))\n"
        "def test_it(n):\n    print('from', n)\n    assert n != 5\n"
    )
    _, output = suite.run("--workers", "4", one=text, two=text, three=text)
    assert output.count("from 5") == 3
    assert "from 4" not in output


def test_a_worker_that_dies_fails_its_test_and_the_others_go_on(suite: Suite) -> None:
    text = (
        "import os, signal\ndef test_a(): pass\n"
        "def test_b(): os.kill(os.getpid(), signal.SIGKILL)\ndef test_c(): pass\n"
    )
    code, output = suite.run("--workers", "1", one=text)
    assert code == 1
    assert "the worker that ran this test died: signal SIGKILL" in output
    assert "1 failed, 2 passed" in output


def test_a_test_that_is_timed_out_inside_trio_fails_alone(suite: Suite) -> None:
    code, output = suite.run(
        "--workers",
        "1",
        "-p",
        "pytest_timeout",
        waits="""
        import pytest, trio

        @pytest.mark.timeout(1)
        def test_hangs():
            trio.run(trio.sleep_forever)

        def test_after():
            trio.run(trio.sleep, 0)
        """.replace("\n" + " " * 8, "\n"),
        others="def test_other():\n    import trio\n    trio.run(trio.sleep, 0)\n",
    )
    assert code == 1
    assert "1 failed, 2 passed" in output
    assert "Timeout (>1.0s)" in output


def test_module_fixtures_are_torn_down_when_their_file_is_over(suite: Suite) -> None:
    text = (
        "import pytest\n@pytest.fixture(scope='module')\ndef shared():\n"
        "    yield\n    open('ended', 'a').write(__name__ + ' ')\n"
        "def test_a(shared): pass\ndef test_b(shared): pass\n"
    )
    code, _ = suite.run("--workers", "1", one=text, two=text)
    assert code == 0
    assert sorted((suite.directory / "ended").read_text().split()) == ["test_one", "test_two"]


def test_x_stops_after_the_first_failure(suite: Suite) -> None:
    many = "".join(f"def test_{n}(): pass\n" for n in range(400))
    code, output = suite.run("--workers", "2", "-x", a=f"def test_bad(): assert False\n{many}", b=many)
    assert code != 0
    assert "1 failed" in output
    assert "stopping after 1 failures" in output
    assert "800 passed" not in output


def test_tests_that_would_wait_for_each_other_are_executed_by_one_worker(suite: Suite) -> None:
    text = "import os, pytest\npytestmark = pytest.mark.one_worker\n"
    test = "def test_{0}():\n    with open('pids', 'a') as file: file.write(f'{{os.getpid()}}\\n')\n"
    cache = suite.directory / ".pytest_cache/v/callboard"
    cache.mkdir(parents=True)
    (cache / "durations").write_text(json.dumps({f"test_a.py::test_{n}": 100 for n in range(20)}))
    code, _ = suite.run("--workers", "3", a=text + "".join(test.format(n) for n in range(20)), b="def test_b(): pass")
    assert code == 0
    pids = (suite.directory / "pids").read_text().split()
    assert (len(pids), len(set(pids))) == (20, 1)


def test_what_a_budget_leaves_out_is_printed(suite: Suite) -> None:
    slow = "".join(f"def test_{n}(): pass\n" for n in range(5))
    code, output = suite.run("--workers", "1", "--budget", "0.000001", a=slow, b=slow)
    assert code == 0
    assert "not run within the time" in output


def test_at_the_end_of_a_budget_a_test_that_hangs_has_failed_and_a_slow_one_has_not(suite: Suite) -> None:
    hangs = (
        "import subprocess, time\ndef test_it():\n    sleeper = subprocess.Popen(['sleep', '600'])\n"
        "    open('begun', 'w').write(str(sleeper.pid)); time.sleep(600)\n"
    )
    cache = suite.directory / ".pytest_cache/v/callboard"
    cache.mkdir(parents=True)
    (cache / "durations").write_text(json.dumps({"test_a.py::test_it": 0, "test_b.py::test_it": 1000}))
    budget = ("--budget", "5", "--hangs-after", "0")
    code, output = suite.run("--workers", "2", *budget, a=hangs, b=hangs)
    assert code == 1
    assert "1 failed" in output
    assert "FAILED test_a.py::test_it" in output
    assert "not run within the time: 1 tests in 1 files: test_b.py" in output
    pid = int((suite.directory / "begun").read_text())
    assert not is_alive(pid)


def test_ctrl_c_ends_the_workers(suite: Suite) -> None:
    text = "import time\ndef test_it():\n    open('begun', 'w').close()\n    time.sleep(600)\n"
    process = suite.start("--workers", "1", one=text)
    parent = psutil.Process(process.pid)
    end = time.monotonic() + PATIENCE
    while not (suite.directory / "begun").exists():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(POLL)
    children = parent.children(recursive=True)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
    assert process.returncode == 2
