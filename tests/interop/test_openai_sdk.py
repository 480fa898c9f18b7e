"""OpenAI's own SDK against our server: tools that it plays itself, images, and errors as its own types."""

from __future__ import annotations

from interop.environments import needs
from interop.test_http_clients import client
from support.fake_models import Reply
from support.http_agents import LOOP
from support.http_server import Serve, serve

__all__ = ["serve"]

pytestmark = needs("control")


async def test_openais_own_sdk_plays_its_tools_shows_images_and_knows_our_errors(serve: Serve) -> None:
    async with serve(api={"limits": {"rate_limit_per_minute": 5, "rate_limit_burst": 10}}) as api_server:
        api_server.agent_runner.plain(LOOP, name="clerk")
        api_server.agent_runner.models.answer_with(
            lambda request: (
                f"It is {request.results[-1]}."
                if request.results
                else Reply(calls=[("lookup", {"word": "sky"})])
                if request.offered
                else "a dot"
            )
        )
        got = await client(api_server, "openai_tools.py", f"{api_server.url}/v1", api_server.token)
    assert got["whole"] == ["tool_calls", "lookup", {"word": "sky"}, "It is green."]
    assert got["streamed"] == ["tool_calls", "lookup"]
    assert got["seen"] == "a dot"
    assert got["model"] == "agent/clerk"
    assert got["bad"] == ["BadRequestError", "usage", True]
    assert got["absent"] == ["NotFoundError", "not_found", True]
    assert got["nobody"] == ["AuthenticationError", "unauthorized", True]
    assert got["often"] == ["RateLimitError", "rate_limited", True]
