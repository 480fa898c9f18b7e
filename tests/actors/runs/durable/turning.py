"""A program that plays a turn of a session, or goes on with one, and is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import trio

sys.path.insert(0, str(Path(__file__).parent))

from playing import kill_after_row

import callboard
from callboard.actors.runs.durable import interrupted, resume
from callboard.actors.runs.loading import RunCallbacks
from callboard.actors.runs.session_run import agent_of, say
from callboard.actors.runs.sessions.turn import StoredTurn
from callboard.protocol.errors import CallboardError
from callboard.protocol.requests import RunRequest


def kill_once_written() -> None:
    """This process is killed between the session's file and the word that the run is over."""

    def mark_over(_: StoredTurn) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    StoredTurn.mark_over = mark_over  # type: ignore[method-assign]


async def main(order: dict[str, Any]) -> None:
    if order.get("kill") == "written":
        kill_once_written()
    elif order.get("kill"):
        kill_after_row(order["kill"])
    async with callboard.Root(config_dir=order["config"]) as root:
        try:
            if order.get("resume"):
                runs = await trio.to_thread.run_sync(interrupted, os.environ)
                outcome = await resume(root, runs[0].run) if runs else None
            else:
                request, hooks = (
                    RunRequest(target=order["target"], prompt=order["prompt"], yes=True),
                    RunCallbacks(durable=True),
                )
                agent = None
                if order["target"]:
                    agent = agent_of(await root.loader.load(request, hooks))
                outcome = await say(root, None, "bridges", request, hooks, agent=agent)
        except CallboardError as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
            return
    print(json.dumps(None if outcome is None else outcome.to_wire()))


if __name__ == "__main__":
    trio.run(main, json.loads(sys.argv[1]))
