"""A program with an agent of Python functions, which is killed in the midst of a call as often as a file says."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import trio

import callboard
from callboard.protocol.errors import CallboardError
from callboard.supervisors.journal.journal import Journal

DONE = Path(sys.argv[1])
ORDER: dict[str, Any] = json.loads(sys.argv[2])


JOURNALS: set[Journal] = set()


def remember_journals() -> None:
    put = Journal.put

    def remembered(self: Journal, *args: Any, **more: Any) -> None:
        JOURNALS.add(self)
        put(self, *args, **more)

    Journal.put = remembered  # type: ignore[method-assign]


async def work(name: str) -> str:
    """Does something to the world, and is killed once.

    Args:
        name: of what is done.
    """
    return _do(name)


async def work_by_key(name: str, call_key: str) -> str:
    """The same, once for each key.

    Args:
        name: of what is done.
    """
    return _do(f"{name} {call_key}")


def _do(line: str) -> str:
    with DONE.open("a") as done:
        done.write(f"{line}\n")
    if len(DONE.read_text().splitlines()) <= ORDER.get("kills", 1):
        while any(each._bytes_put != each._bytes_written for each in JOURNALS):
            time.sleep(0.01)  # a call that reads waits for no row
        os.kill(os.getpid(), signal.SIGKILL)
    return "worked"


async def main() -> None:
    effect = ORDER.get("effect")
    function = work_by_key if effect == "keyed" else work
    tool = callboard.function_tool(function, name="work", effect=effect)
    clerk = callboard.Agent(name="clerk", instructions="You work.", can_ask_user=False)
    async with callboard.Root(config_dir=ORDER["config"]):
        try:
            if ORDER.get("resume"):
                outcome = await callboard.resume("run-1", tools=[tool], on_unknown=ORDER.get("now"))
            else:
                outcome = await callboard.run(
                    clerk, "go", tools=[tool], durable=True, id="run-1", on_unknown=ORDER.get("then")
                )
        except CallboardError as error:
            print(json.dumps({"refused": error.code}))
            return
    error = None if outcome.error is None else outcome.error.code
    print(json.dumps({"output": outcome.output, "status": outcome.status, "error": error}))


remember_journals()
trio.run(main)
