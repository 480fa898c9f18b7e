"""A server written with the official SDK (`.venv/interop/modern`). It speaks both eras, as its client wishes.

    python sdk.py stdio      over stdin and stdout
    python sdk.py http       Streamable HTTP at /mcp; prints its port
    python sdk.py sse        the transport of 2024-11-05, at /sse; prints its port

Its tools are named after what they make the client do.
"""

from __future__ import annotations

import os
import socket
import sys
import warnings
from typing import Annotated, Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp_types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    CreateMessageResult,
    ListRootsResult,
    PromptReference,
    ResourceTemplateReference,
    SamplingMessage,
    TextContent,
    ToolAnnotations,
)
from pydantic import BaseModel

warnings.simplefilter("ignore")  # the SDK warns of what the newest revision no longer has
server = MCPServer("sdk", version="1.2.3", instructions="Made to be called.", log_level="ERROR")
cancelled = 0


class Answer(BaseModel):
    """What `ask` wants to know."""

    name: str
    times: int = 1


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
async def slow(ctx: Context, seconds: float, steps: int = 4) -> str:
    """Takes its time and tells how far it is."""
    global cancelled
    try:
        for step in range(steps):
            await ctx.report_progress(step + 1, steps, f"step {step + 1}")
            await anyio.sleep(seconds / steps)
    except anyio.get_cancelled_exc_class():
        cancelled += 1
        raise
    return f"{steps} steps"


@server.tool()
def cancellations() -> int:
    """How many calls of `slow` were cancelled."""
    return cancelled


@server.tool()
def fail(text: str) -> str:
    """Fails."""
    raise ToolError(text)


@server.tool()
def die(text: str) -> str:
    """Ends the process in the middle of the call."""
    print(text, file=sys.stderr, flush=True)
    os._exit(3)


def question(subject: str) -> Elicit[Answer]:
    """What `ask` asks."""
    return Elicit(f"Who wants {subject}?", Answer)


@server.tool()
def ask(subject: str, answer: Annotated[Answer, Resolve(question)]) -> str:
    """Asks a person."""
    return f"{answer.name} wants {subject} {answer.times} times"


def prompt_of(prompt: str) -> Sample:
    """What `think` has the client's model asked."""
    return Sample([SamplingMessage(role="user", content=TextContent(type="text", text=prompt))], max_tokens=50)


@server.tool()
def think(prompt: str, thought: Annotated[CreateMessageResult, Resolve(prompt_of)]) -> str:
    """Asks the client's model."""
    return f"{thought.model} thinks: {thought.content.text}"


def roots() -> ListRoots:
    """What `where` asks."""
    return ListRoots()


@server.tool()
def where(found: Annotated[ListRootsResult, Resolve(roots)]) -> str:
    """Lists the client's roots."""
    return " ".join(str(root.uri) for root in found.roots)


@server.tool()
async def grow(ctx: Context, name: str) -> str:
    """Adds a tool and tells who listens."""
    server.add_tool(lambda: name, name=name, description="Grown.")
    await ctx.notify_tools_changed()
    if ctx.protocol_version is None or ctx.protocol_version < "2026":
        await ctx.session.send_tool_list_changed()
    return name


@server.tool()
async def touch(ctx: Context, uri: str) -> str:
    """Tells who listens that a resource has changed."""
    await ctx.notify_resource_updated(uri)
    return uri


@server.tool()
async def say(ctx: Context, text: str) -> str:
    """Logs."""
    await ctx.info(text)
    return text


@server.resource("notes://first", mime_type="text/plain")
def first() -> str:
    """A note."""
    return "the first note"


@server.resource("notes://{name}/text")
def note(name: str) -> str:
    """Any note."""
    return f"a note called {name}"


@server.prompt()
def greet(name: str) -> str:
    """Greets."""
    return f"Say hello to {name}."


@server.completion()
async def complete(
    ref: PromptReference | ResourceTemplateReference, argument: CompletionArgument, context: CompletionContext | None
) -> Completion | None:
    """Completes names."""
    return Completion(values=[name for name in ("Ada", "Alan", "Grace") if name.startswith(argument.value)])


async def listen(app: Any) -> None:
    """Serve an app on loopback, at a port that is free."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        anyio.run(listen, server.streamable_http_app() if sys.argv[1] == "http" else server.sse_app())
