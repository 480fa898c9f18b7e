"""The browser of these tests is no burden to the machine once they are over."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support import browser

HOLDS = """
import signal, sys
sys.path.insert(0, sys.argv[1])
from support.browser import launched
with launched() as found:
    print(found.url, flush=True)
    signal.pause()
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short path: Chromium puts a socket below it, whose path may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="held-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_browser_and_its_profile_are_gone_when_the_test_program_is_killed(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, place: Path
) -> None:
    if browser.program() is None:
        pytest.skip("no Chromium on this machine: install chromium-headless-shell to see its end tested")
    monkeypatch.setenv("TMPDIR", str(place))
    argv = [sys.executable, "-c", HOLDS, str(Path(browser.__file__).parents[1])]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        address = tests.stdout.readline()
        started = psutil.Process(tests.pid).children(recursive=True)
        tests.send_signal(number)
    assert address.startswith("ws://")
    ended, alive = psutil.wait_procs(started, timeout=60)
    for process in alive:
        process.kill()
    assert alive == []
    assert len(ended) > 2, "the browser has helpers"
    assert list(place.glob("browser-*")) == []
