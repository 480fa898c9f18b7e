"""`callboard serve` and `callboard acp`: their flags. What `serve` does is in `serving`."""

from __future__ import annotations

import sys
from typing import Any

import click

from . import options


@click.command("serve", short_help="Serve agents to people and programs: websocket, HTTP, a page.")
@click.option("--host", metavar="HOST", help="Address to listen on [default: api.listen_addr, else 127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65_535), metavar="PORT", help="Port, 0 for a free one [default: 3400].")
@click.option("--ui", is_flag=True, help="Prints the page's address with its token, also where stderr is no terminal.")
@click.option("-q", "--quiet", is_flag=True, help="Prints nothing but errors.")
@options.config_dir
def serve(**given: Any) -> int:
    """Serves the control channel and HTTP on one port, until Ctrl-C or SIGTERM; SIGHUP reads config.yaml again.

    It ends with the terminal that it was started in, except under nohup and setsid.

    It listens on this machine alone, where `ps`, `attach` and the page find their token by themselves. Any other
    address needs keys for those who come (api.auth in config.yaml, `callboard keys`).

    The first signal lets the runs that are under way end, for api.shutdown_grace_seconds; a second one cancels them.
    Exit code 0 if all had ended, else 130, 143 or 129.
    """
    from .serving import ServeRequest, serve_until_signal

    return serve_until_signal(ServeRequest(**given))


@click.command("acp", short_help="Serve an agent to an editor (Agent Client Protocol).")
@click.argument("agent", required=False, shell_complete=options.complete_agent)
@options.config_dir
def acp(agent: str | None, config_dir: str | None) -> int:
    """Speaks the Agent Client Protocol over stdin and stdout, for an editor that starts this command. Ends with it.

    AGENT is who answers in new sessions, unless the editor names another; without one it is the model of config.yaml,
    with no tools. What is said is kept as sessions (callboard sessions).
    """
    from .. import Root
    from ..actors.front.acp.agent import serve_acp
    from ..actors.runs.finding import find
    from ..actors.runs.target import read
    from .frame import exit_code_of, play
    from .render.progress import Progress

    async def speak(root: Root) -> int:
        if agent is not None:
            read(find(agent, config_dir=root.config_dir), root.config_dir, shelf=root.shelf)
        await serve_acp(root, agent)
        return exit_code_of(root)

    if sys.stdin.isatty():
        sys.stderr.write("callboard: serving over stdin and stdout, where an editor should be (Ctrl-C ends it)\n")
    return play(speak, Progress(), config_dir=config_dir, person=False, serving=True)
