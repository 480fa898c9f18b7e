"""Callboard as an MCP server, for `callboard mcp serve`: agents as tools of an MCP client, over stdio or HTTP."""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from ...actors.front.mcp_server.service import ServiceOptions, read_agents
from ...actors.runs.root import Root
from ...protocol.errors import UsageError
from .. import flag_values
from ..frame import exit_code_of, play
from ..render.progress import ProgressDisplay
from ..render.text import safe

HOST, PORT = "127.0.0.1", 8808


def serve_agents(
    *,
    agents: tuple[str, ...],
    http: bool,
    host: str | None,
    port: int | None,
    token_file: str | None,
    model: str | None,
    yes: bool,
    allow: tuple[str, ...],
    roots: tuple[str, ...],
    quiet: bool,
    config_dir: str | None,
) -> int:
    """Serve until the client disconnects or a signal arrives; return the exit code.

    The arguments are the flags of `callboard mcp serve`.

    Raises:
        UsageError: there is no such agent, or the address can't be bound.
        ConfigError: a package for serving over HTTP is not installed.
    """
    flag_values.directories(roots)
    token = None if token_file is None else _token(Path(token_file))
    options = ServiceOptions(model=model, allow=allow, yes=yes, roots=roots)

    def say(text: str) -> None:
        if not quiet:
            sys.stderr.write(f"callboard: {safe(text)}\n")
            sys.stderr.flush()

    async def serve(root: Root) -> int:
        offers, problems = await trio.to_thread.run_sync(read_agents, root, agents)
        for problem in problems:
            say(f"warning: {problem}")
        names = ", ".join(offers)
        if root.settings.mcp_server_support:
            # link=False: a server that can't be started must not end this one; it is tried again later.
            root.kernel.spawn(lambda _: root.mcp.warm(), name="warm", link=False)
        if http:
            from ...actors.front.mcp_server.serving import serve_http

            await serve_http(
                root,
                offers,
                host=host or HOST,
                port=PORT if port is None else port,
                token=token,
                options=options,
                on_listening=lambda url: say(f"serving {names} at {url} (Ctrl-C ends it)"),
            )
        else:
            from ...actors.front.mcp_server.serving import serve_stdio

            if sys.stdin.isatty():
                say(f"serving {names} over stdin and stdout, where an MCP client should be (Ctrl-C ends it)")
            await serve_stdio(root, offers, options=options)
        return exit_code_of(root)

    # person=False: over stdio, standard input belongs to the MCP client.
    return play(serve, ProgressDisplay(), config_dir=config_dir, person=False, serving=True)


def _token(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"--token-file {file}: can't be read: {reason}") from error
    # A bearer token in a header has neither blanks nor other characters (RFC 6750, section 2.1).
    if not text or not text.isascii() or any(char.isspace() for char in text):
        raise UsageError(f"--token-file {file}: a token is one line of ASCII characters without blanks")
    return text
