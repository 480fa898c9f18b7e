"""One contender: a process that measures on request (see `../contenders/_serve.py` for its side).

A process of its own for each, so that nobody's loop, threads, garbage or imports weigh on the others. They take
turns, never side by side: while one measures, the others wait for a line on their stdin.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CONTENDERS = Path(__file__).parent.parent / "contenders"

RIVALS = Path(sys.prefix) / "interop/rivals/bin/python"
"""The Python that `make bench-rivals` makes: what rivals pin and what we pin can't be had in one environment."""

_RIVALS = frozenset({"pykka", "autogen", "xoscar", "langgraph", "dbos", "openai", "langchain", "haystack"})


class Contender:
    """A measuring process. Use it as a context manager.

    Args:
        name: what the table calls it.
        script: its file in `contenders/`, without the suffix.
        python: what it runs on; by default our own Python, and for a rival the one of `make bench-rivals`.
        made_by: the command that installs what it needs.

    Attributes:
        cases: what it can measure; empty if it is missing.
        missing: why it can't be measured (a package that is not installed), or "".
    """

    def __init__(
        self, name: str, script: str, *, python: str | None = None, made_by: str = "make bench-rivals"
    ) -> None:
        self.name = name
        self.made_by = made_by
        self._command = [python or default_python(name), str(CONTENDERS / f"{script}.py")]
        self.cases: frozenset[str] = frozenset()
        self.missing = ""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        try:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except FileNotFoundError as error:
            self.missing = f"there is no {error.filename}"
            return self
        hello = self._read()
        self.missing = hello.get("missing", "")
        self.cases = frozenset(hello.get("cases", ()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def measure(self, case: str, n: int) -> Any:
        """What the case's function returns for `n`: a number or, for some, a mapping of numbers.

        Raises:
            RuntimeError: it died, or said what went wrong.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"case": case, "n": n}) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise RuntimeError(f"{self.name}, {case}: {answer['error']}")
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} died with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def default_python(name: str) -> str:
    """What a contender of this name runs on, unless its benchmark says otherwise."""
    return str(RIVALS) if name in _RIVALS and RIVALS.exists() else sys.executable
