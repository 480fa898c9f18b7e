"""`callboard attach`: a run of a server, as `callboard run` would show it."""

from __future__ import annotations

from typing import Any

import click

from . import options


@click.command("attach", short_help="Watch a run of a server, and answer its questions.")
@click.argument("run", shell_complete=options.complete_run)
@options.no_input
@options.result_form
@options.loudness
@options.server
def command(**given: Any) -> int:
    """Shows RUN (its id, or the beginning of it) from its beginning to its end, as `callboard run` would have: progress
    on stderr, questions at the terminal, the result on stdout, and the exit code of the run.

    The run goes on without this command: Ctrl-C only ends the looking at it, with exit code 130. Any number of
    terminals may be attached; the first answer to a question counts, and the others are told.

    Exit code 3 if no server runs, 6 if it goes away in the middle.
    """
    options.check_loudness(given)
    from . import logging
    from .control.commands.attaching import Request, attach

    logging.configure()
    return attach(Request(**given))
