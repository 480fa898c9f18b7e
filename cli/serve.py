"""`callboard serve`: its flags. What it does is in `serving`, which is imported when there is something to serve."""

from __future__ import annotations

from typing import Any

import click

from . import options


@click.command("serve", short_help="Serve agents to people and programs: websocket, HTTP, a page.")
@click.option("--host", metavar="HOST", help="Address to listen on [default: api.listen_addr, else 127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65_535), metavar="PORT", help="Port, 0 for a free one [default: 3400].")
@click.option("--ui", is_flag=True, help="Prints the page's address with its token, whoever reads stderr.")
@click.option("-q", "--quiet", is_flag=True, help="Prints nothing but errors.")
@options.config_dir
def command(**given: Any) -> int:
    """Serves the control channel and HTTP on one port, until Ctrl-C or SIGTERM; SIGHUP reads config.yaml again.

    It ends with the terminal that it was started in, except under nohup and setsid.

    It listens on this machine alone, where `ps`, `attach` and the page find their token by themselves. Any other
    address needs keys for those who come (api.auth in config.yaml, `callboard keys`).

    The first signal lets the runs that are under way end, for api.shutdown_grace_seconds; a second one cancels them.
    Exit code 0 if all had ended, else 130, 143 or 129.
    """
    from .serving import ServeRequest, serve

    return serve(ServeRequest(**given))
