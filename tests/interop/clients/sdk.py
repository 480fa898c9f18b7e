"""The official SDK's client (`.venv/interop/modern`), told what to do by a plan on stdin; prints what came of it.

The plan is JSON:

    mode         "auto" (the newest revision first) or "legacy" (`initialize`)
    target       the URL of a server, or the command line of one
    token        a bearer token for the URL, if one is needed
    env, cwd     for the command
    elicit       what the questions are answered with, one after another; false declines; null and nobody can be asked
    steps        a list of [step, {...}]:
                     list      the tools' names and schemas
                     call      {name, arguments}: the result, and the progress that was told meanwhile
                     cancel    {name, arguments, once}: a call, given up once there is a file of this name

One line of JSON comes out: {"version", "server", "capabilities", "questions": [...], "results": [...]}. A step that
failed has {"error": text} as its result.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

warnings.simplefilter("ignore")  # the SDK warns of what the newest revision no longer has


class Player:
    """Carries a plan out."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.questions: list[Any] = []

    def target(self) -> Any:
        """What `Client` takes."""
        target = self.plan["target"]
        if isinstance(target, list):
            command, *args = target
            return StdioServerParameters(command=command, args=args, env=self.plan.get("env"), cwd=self.plan.get("cwd"))
        if token := self.plan.get("token"):
            client = httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"})
            return streamable_http_client(target, http_client=client)
        return target

    async def elicit(self, _context: Any, params: Any) -> ElicitResult:
        """Answers a question of the server's."""
        self.questions.append(params.model_dump(mode="json", by_alias=True, exclude_none=True))
        content = self.plan["elicit"].pop(0)
        if content is False:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=content)

    async def call(self, client: Client, name: str, arguments: dict[str, Any]) -> Any:
        """A call with its progress."""
        told: list[Any] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            told.append([progress, total, message])

        result = await client.call_tool(name, arguments, progress_callback=on_progress)
        return {**result.model_dump(mode="json", by_alias=True, exclude_none=True), "progress": told}

    async def cancel(self, client: Client, name: str, arguments: dict[str, Any], once: str) -> Any:
        """A call that is given up."""
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, name, arguments)
            while not Path(once).exists():
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        return "given up"

    async def step(self, client: Client, what: str, given: dict[str, Any]) -> Any:
        """One step's result."""
        match what:
            case "list":
                listed = await client.list_tools()
                return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools]
            case "call":
                return await self.call(client, **given)
            case "cancel":
                return await self.cancel(client, **given)
        raise ValueError(f"no step is called {what!r}")

    async def play(self) -> dict[str, Any]:
        """All of it."""
        elicit = None if self.plan.get("elicit") is None else self.elicit
        results = []
        async with Client(self.target(), mode=self.plan["mode"], elicitation_callback=elicit) as client:
            for what, given in self.plan["steps"]:
                try:
                    results.append(await self.step(client, what, given))
                except MCPError as error:
                    results.append({"error": str(error)})
            server = client.server_info
            return {
                "version": client.protocol_version,
                "server": server and server.name,
                "capabilities": client.server_capabilities.model_dump(mode="json", by_alias=True, exclude_none=True),
                "questions": self.questions,
                "results": results,
            }


if __name__ == "__main__":
    print(json.dumps(anyio.run(Player(json.load(sys.stdin)).play)))
