"""Where `make interop` has put other people's servers, and how they are started.

    modern    mcp 2 and servers written with it; its Python also runs our scripts for the SDK (servers/, clients/)
    legacy    mcp 1, and the one server that needs it
    control   clients of our own server: OpenAI's SDK, schemathesis, AG-UI, ACP
    openai    libraries over OpenAI's API: litellm, langchain-openai, instructor, llm
    codegen   datamodel-codegen, which makes Python classes of our JSON Schemas
    node      servers from npm, the MCP conformance suite, and clients of ours: AG-UI's, the SDK of ACP (with its
              JSON schema), Vercel's AI SDK, openai-node

A test that needs one of them carries `needs("modern")`: it is skipped where the environment is absent, and conftest.py
counts those that were. With CALLBOARD_INTEROP=required, as in .ci/run, nothing is skipped.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from support.waiting import PATIENCE

from callboard.protocol.mcp.config import Server
from callboard.supervisors import Actor
from callboard.supervisors.process import start_process

HERE = Path(__file__).parent
INSTALLED = Path(sys.prefix) / "interop"
NPM = INSTALLED / "node/node_modules/@modelcontextprotocol"
MODERN = INSTALLED / "modern/bin"
LEGACY = INSTALLED / "legacy/bin"
CONTROL = INSTALLED / "control/bin"
OPENAI = INSTALLED / "openai/bin"
SDK = HERE / "servers/sdk.py"
ABSENT = "`make interop` has not installed"


def needs(*names: str) -> pytest.MarkDecorator:
    """A mark for tests that need these environments."""
    absent = [name for name in names if not (INSTALLED / f"{name}.made").exists()]
    required = os.environ.get("CALLBOARD_INTEROP") == "required"
    return pytest.mark.skipif(bool(absent) and not required, reason=f"{ABSENT} {', '.join(absent)}")


def command(name: str, program: str | Path, *args: str | Path, **more: object) -> Server:
    """A `stdio` server."""
    return Server(name=name, type="stdio", command=str(program), args=tuple(map(str, args)), **more)


def npm(name: str, *args: str | Path, **more: object) -> Server:
    """A server from npm, over stdio."""
    return command(name, shutil.which("node") or "node", npm_script(name), *args, **more)


def npm_script(name: str) -> Path:
    """Its program, for node."""
    return NPM / f"server-{name}/dist/index.js"


def sdk(*args: str | Path, **more: object) -> Server:
    """Our server on the official SDK, over stdio."""
    return command("sdk", MODERN / "python", SDK, "stdio", *args, **more)


@asynccontextmanager
async def printed_port(me: Actor, program: list[str]) -> AsyncIterator[int]:
    """A server that prints its port when it listens; that port."""
    process = await start_process(me, program)
    assert process.stdout is not None
    line = b""
    with trio.fail_after(PATIENCE):
        while not line.endswith(b"\n"):
            line += await process.stdout.receive_some() or pytest.fail(f"it ended: {process.stderr_tail}")
    try:
        yield int(line)
    finally:
        with me.cleanup():
            await process.stop()


@asynccontextmanager
async def listening(me: Actor, kind: str) -> AsyncIterator[int]:
    """Our server on the official SDK, over `http` or `sse`; its port."""
    async with printed_port(me, [str(MODERN / "python"), str(SDK), kind]) as port:
        yield port


@asynccontextmanager
async def everything(me: Actor, kind: str) -> AsyncIterator[int]:
    """`server-everything` over `streamableHttp` or `sse`; its port."""
    with trio.socket.socket() as free:
        await free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    up = trio.Event()
    process = await start_process(
        me,
        [shutil.which("node") or "node", str(npm_script("everything")), kind],
        env={**os.environ, "PORT": str(port)},
        stdout="null",
        on_stderr=lambda text: up.set() if f"port {port}" in text else None,
    )
    try:
        with trio.fail_after(PATIENCE):
            await up.wait()
        yield port
    finally:
        with me.cleanup():
            await process.stop()
