"""One `callboard serve` as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support import secret_watch
from support.starter import CALLBOARD as FORKED
from support.waiting import PATIENCE

CALLBOARD = str(Path(sys.executable).with_name("callboard"))
SOON = PATIENCE


class Serving:
    """One `callboard serve`, and what it has said on stderr.

    `program` stands for `callboard`; without one it is a fork (see starter.py).
    """

    def __init__(self, home: Path, *flags: str, program: Sequence[str] = ()) -> None:
        self.home = home
        self.said: list[str] = []
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
        environ["TMPDIR"] = str(home / "tmp")  # a killed server cannot remove its temporary files
        (home / "tmp").mkdir(exist_ok=True)
        environ["CALLBOARD_SANDBOX"] = "off"  # effects are counted outside of the workspace
        argv = [*(program or FORKED), "serve", "--port", "0", "--config-dir", str(home / "config"), *flags]
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=environ)

    def see(self, text: str) -> str:
        """Wait for a line that holds this."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            secret_watch.told("callboard serve", line)
            if text in line:
                return line
        raise AssertionError("".join(self.said))

    def ask(self, path: str, body: Any = None, *, status: int | None = None) -> Any:
        (file,) = (self.home / "state" / "callboard" / "servers").glob("*.json")
        server = json.loads(file.read_text())
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(server["url"] + path, data, {"authorization": f"Bearer {server['token']}"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=SOON) as response:
                assert status is None
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code != status:
                raise
            return json.load(error)

    def end(self) -> int:
        """The exit code; what is left on stderr is added to `said`."""
        _, rest = self.process.communicate(timeout=SOON)
        self.said += rest.splitlines(keepends=True)
        return self.process.returncode
