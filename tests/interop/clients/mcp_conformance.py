"""Callboard as the client of the MCP conformance suite: the suite runs `mcp_conformance.py URL` for each scenario.

MCP_CONFORMANCE_SCENARIO names the scenario, MCP_CONFORMANCE_CONTEXT has what the suite hands a client: credentials, the
calls to make. The tools of the server are called as an agent calls them, permissions and sign-in included. A front end
stands in for the user: it opens the page of a sign-in and answers questions with their default.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
import urllib.request
from pathlib import Path
from typing import Any

import trio

from callboard import Limits, Root
from callboard.actors.engine.conversation.run import CallRounds
from callboard.actors.work.context import AgentCall, RunContext
from callboard.actors.work.mcp.tools.direct import direct_tool
from callboard.actors.work.mcp.tools.view import ServersView, ServerView
from callboard.actors.work.tools.permissions import Permissions
from callboard.protocol.chat import ToolCall
from callboard.protocol.kernel.questions import Question
from callboard.protocol.mcp.model import McpTool
from callboard.supervisors import Actor

NAME = "suite"
CIMD = "https://conformance-test.local/client-metadata.json"
"""The address of a client metadata document that the suite expects."""

NO_CALLS = ("initialize", "request-metadata", "json-schema-ref-no-deref")
CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "tools_call": [("add_numbers", {"a": 2, "b": 3})],
    "elicitation-sep1034-client-defaults": [("test_client_elicitation_defaults", {})],
    "sse-retry": [("test_reconnection", {})],
    "sep-2322-client-request-state": [
        ("test_mrtr_echo_state", {}),
        ("test_mrtr_unrelated", {}),
        ("test_mrtr_no_state", {}),
        ("test_mrtr_no_result_type", {}),
    ],
}
"""Calls of the scenarios whose context names none; of the others every tool is called once."""


class User:
    """Front end: opens pages and accepts defaults."""

    name = "terminal"

    def __init__(self, root: Root, nursery: trio.Nursery) -> None:
        self._root = root
        self._nursery = nursery

    def asked(self, question: Question) -> None:
        pages = [line for line in question.text.splitlines() if line.startswith("http")]
        if "sign in" in question.text and pages:
            self._nursery.start_soon(self._open, question.id, pages[0])
        else:
            answer = question.default or (question.options[0] if question.options else "yes")
            self._nursery.start_soon(self._answer, question.id, answer)

    def closed(self, question_id: str, by: str) -> None:
        """Nothing is shown that would have to go."""

    async def _open(self, question: str, page: str) -> None:
        try:
            await trio.to_thread.run_sync(_visit, page, abandon_on_cancel=True)
        except OSError as error:  # the page refuses: so does the user
            print(f"{page[:200]}: {error}", file=sys.stderr)
            await self._answer(question, "/decline")

    async def _answer(self, question: str, text: str) -> None:
        self._root.questions.answer(question, text, "terminal")


def _visit(page: str) -> None:
    with urllib.request.urlopen(page, timeout=30) as answer:
        answer.read()


def entry(url: str, scenario: str, context: dict[str, Any]) -> dict[str, Any]:
    """The server's entry of mcp.json, as a user would write it for this scenario."""
    oauth: dict[str, Any] = {}
    if "client_id" in context and "client-credentials" in scenario:
        oauth = {"grantType": "client_credentials", "clientId": context["client_id"]}
        secret = {"clientSecret": context.get("client_secret"), "privateKey": context.get("private_key_pem")}
        oauth |= {key: value for key, value in secret.items() if value}
    elif "pre-registration" in scenario:
        oauth = {"clientId": context["client_id"], "clientSecret": context["client_secret"]}
    elif "cimd" in scenario:
        oauth = {"clientMetadataUrl": CIMD}
    return {"url": url, "trust": "full", **({"oauth": oauth} if oauth else {})}


def example(schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments that fit a simple schema."""
    plain: dict[Any, Any] = {"string": "x", "number": 1, "integer": 1, "boolean": True, "array": [], "object": {}}
    return {name: plain.get(each.get("type"), "x") for name, each in schema.get("properties", {}).items()}


def wanted(scenario: str, context: dict[str, Any], tools: list[McpTool]) -> list[tuple[str, dict[str, Any]]]:
    """The calls to make."""
    if scenario in NO_CALLS:
        return []
    if scenario in CALLS:
        return CALLS[scenario]
    if "toolCalls" in context:
        return [(call["name"], call["arguments"]) for call in context["toolCalls"]]
    if scenario == "json-schema-2020-12-preservation":
        shown = next(tool for tool in tools if tool.name.endswith("json_schema_2020_12_tool"))
        return [("json_schema_echo", {"schema": shown.input_schema})]
    return [(tool.name, example(tool.input_schema)) for tool in tools]


async def drive(root: Root, scenario: str, context: dict[str, Any]) -> list[str]:
    """Make the calls of a scenario; the errors that they ended with."""
    errors: list[str] = []

    async def by_hand(me: Actor) -> None:
        run = RunContext(
            gateway=root.gateway,
            limits=Limits(),
            config_dir=root.config_dir,
            environ=os.environ,
            run_agent=_no_agents,
            permissions=Permissions(root.registry.permissions(root.settings.permissions), yes=True),
            settings=root.settings,
            mcp=lambda: root.mcp,
        )
        with root.mcp.scope(run="suite", agent=me.path) as scope:
            view = ServerView(talk=ServersView(scope=scope, context=run), server=root.mcp.config.get(NAME))

            async def listed() -> list[McpTool]:
                async with scope.client(NAME, me):
                    return list((await scope.catalog(NAME, me)).tools)

            tools = await view.admitted(me, listed)
            by_name = {tool.name: tool for tool in tools}
            for number, (name, arguments) in enumerate(wanted(scenario, context, tools)):
                tool = direct_tool(view, by_name[name])
                calls = CallRounds([tool], run.permissions)
                call = ToolCall(id=f"call{number}", name=tool.name, arguments=arguments)
                (turn,) = await calls.play(me, [call])
                print(f"{name}: {turn.content}")
                if turn.error:
                    errors.append(str(turn.content))

    async with trio.open_nursery() as nursery:
        with root.questions.attach(User(root, nursery)):
            stream = root.bus.open("suite")
            end = await root.kernel.spawn(by_hand, name="suite", stream=stream, link=False).wait()
            root.bus.close(stream)
        nursery.cancel_scope.cancel()
    if end.error is not None:
        errors.append("".join(traceback.format_exception(end.error))[-2000:])
    return errors


async def _no_agents(_me: Actor, _call: AgentCall) -> str:
    raise AssertionError("a call by hand has no agents")


async def main(url: str) -> int:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    with tempfile.TemporaryDirectory(prefix="mcp-conformance-") as home:
        os.environ |= {"XDG_STATE_HOME": f"{home}/state", "XDG_CACHE_HOME": f"{home}/cache"}
        config = Path(home, "config")
        config.mkdir()
        servers = {"mcpServers": {NAME: entry(url, scenario, context)}}
        (config / "mcp.json").write_text(json.dumps(servers))
        async with Root(config_dir=config, wait_for_front_end=True) as root:
            errors = await drive(root, scenario, context)
    print("\n".join(errors), file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(trio.run(main, sys.argv[-1]))
