"""`callboard acp`: an agent for editors that speak the Agent Client Protocol over stdio."""

from __future__ import annotations

import sys

import click

from . import options


@click.command("acp", short_help="Serve an agent to an editor (Agent Client Protocol).")
@click.argument("agent", required=False, shell_complete=options.complete_agent)
@options.config_dir
def command(agent: str | None, config_dir: str | None) -> int:
    """Speaks the Agent Client Protocol over stdin and stdout, for an editor that starts this command. Ends with it.

    AGENT is who answers in new sessions, unless the editor names another; without one it is the model of config.yaml,
    with no tools. What is said is kept as sessions (callboard sessions).
    """
    from .. import Root
    from ..actors.front.acp.stdio import serve_acp
    from ..actors.runs.finding import find
    from ..actors.runs.target import read
    from .frame import exit_code_of, play
    from .render.progress import Progress

    async def serve(root: Root) -> int:
        if agent is not None:
            read(find(agent, config_dir=root.config_dir), root.config_dir, shelf=root.shelf)
        await serve_acp(root, agent)
        return exit_code_of(root)

    if sys.stdin.isatty():
        sys.stderr.write("callboard: serving over stdin and stdout, where an editor should be (Ctrl-C ends it)\n")
    return play(serve, Progress(), config_dir=config_dir, person=False, serving=True)
