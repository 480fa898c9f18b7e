"""A client made with somebody else's ACP library, driving `callboard acp`; what it has seen is one JSON object.

python acp_client.py CALLBOARD CONFIG_DIR AGENT CWD
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process, text_block
from acp.interfaces import Client
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    Implementation,
    RequestPermissionResponse,
)


class Seen(Client):  # type: ignore[misc]  # a protocol of theirs
    """Allows everything, and writes down what it is told."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.permissions: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.slow = asyncio.Event()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        kinds = [option.kind for option in options]
        self.permissions.append({"title": tool_call.title, "kinds": kinds, "id": tool_call.tool_call_id})
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=options[0].option_id))

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.asked.append(message)
        return AcceptElicitationResponse(action="accept", content={"answer": "blue"})

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        told = update.model_dump(by_alias=True, exclude_none=True)
        self.updates.append(told)
        if "slowly" in json.dumps(told):
            self.slow.set()

    def on_connect(self, conn: Any) -> None:
        pass

    def kinds(self) -> list[str]:
        kinds = [update["sessionUpdate"] for update in self.updates]
        return [kind for index, kind in enumerate(kinds) if index == 0 or kinds[index - 1] != kind]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"]["text"] for update in self.updates if update["sessionUpdate"] == kind)


async def main(callboard: str, config_dir: str, agent: str, cwd: str) -> None:
    seen = Seen()
    told: dict[str, Any] = {}
    environ = {**os.environ, "CALLBOARD_CONFIG_DIR": config_dir}
    running = spawn_agent_process(
        seen, callboard, "acp", agent, env=environ, cwd=cwd, use_unstable_protocol=True
    )  # forms are new
    async with running as (agent_side, process):
        able = ClientCapabilities(elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities()))
        hello = await agent_side.initialize(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=able,
            client_info=Implementation(name="test", version="1"),
        )
        told["version"], told["name"] = hello.protocol_version, hello.agent_info.name
        session = await agent_side.new_session(cwd=cwd, mcp_servers=[])
        id = session.session_id
        told["modes"] = [mode.id for mode in session.modes.available_modes]

        first = await agent_side.prompt(session_id=id, prompt=[text_block("write it")])
        told["first"] = [first.stop_reason, seen.kinds(), seen.text()]
        told["permissions"], told["asked"] = seen.permissions, seen.asked
        told["plan"] = [each["entries"] for each in seen.updates if each["sessionUpdate"] == "plan"]

        waiting = asyncio.ensure_future(agent_side.prompt(session_id=id, prompt=[text_block("go slowly")]))
        await seen.slow.wait()
        await agent_side.cancel(session_id=id)
        told["cancelled"] = (await waiting).stop_reason

        seen.updates.clear()
        await agent_side.load_session(cwd=cwd, session_id=id, mcp_servers=[])
        told["replayed"] = [seen.kinds(), seen.text("user_message_chunk")]
        told["listed"] = [each.session_id == id for each in (await agent_side.list_sessions()).sessions]
        await agent_side.set_session_mode(session_id=id, mode_id="yes")
        options = await agent_side.set_config_option(session_id=id, config_id="model", value="fake:other")
        told["model"] = options.config_options[0].current_value
        try:
            await agent_side.prompt(session_id="no-such", prompt=[text_block("x")])
        except RequestError as error:
            told["refused"] = error.code
        await agent_side.close_session(session_id=id)
        await agent_side.resume_session(cwd=cwd, session_id=id, mcp_servers=[])
    told["exit"] = process.returncode
    print(json.dumps(told))


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 60))
