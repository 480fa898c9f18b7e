"""A program with an agent that changes files, and is killed just before or just after a call has changed one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from typing import Any

import trio

import callboard
from callboard.actors.work.tools.builtin import writing

ORDER: dict[str, Any] = json.loads(sys.argv[1])


def kill(function: Callable[..., Any]) -> Callable[..., Any]:
    def killed(*args: Any, **options: Any) -> None:
        if ORDER["kill"] == "after":
            function(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    return killed


async def main() -> None:
    os.chdir(ORDER["project"])
    if ORDER.get("kill"):
        writing.replace = kill(writing.replace)
        shutil.rmtree = kill(shutil.rmtree)  # type: ignore[assignment]  # it has attributes besides
    async with callboard.Root(config_dir=ORDER["config"]):
        if ORDER.get("resume"):
            outcome = await callboard.resume("run-1")
        else:
            agent = callboard.Agent(
                name="clerk", instructions="You work.", can_ask_user=False, global_tools=(ORDER["tool"],)
            )
            outcome = await callboard.run(agent, "go", durable=True, id="run-1", approve_all=True)
    print(json.dumps({"output": outcome.output, "status": outcome.status}))


trio.run(main)
