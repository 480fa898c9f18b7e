"""`callboard setup`: the first configuration, in a few questions.

A conversation begins with it where there is none: `needs_setup` says so and costs next to nothing, `run_setup` asks.
"""

from __future__ import annotations

import os
import sys

import click

from ..actors.runs.setup.needed import needs_setup
from . import options

__all__ = ["command", "needs_setup", "run_setup"]


@click.command("setup", short_help="Choose a model, try it, and write config.yaml.")
@options.no_input
@options.config_dir
def command(no_input: bool, config_dir: str | None) -> int:
    """Looks for API keys in the environment and for model servers on this machine (Ollama, LM Studio, llama.cpp, vLLM),
    asks which model is to answer, asks that model for one word, and writes config.yaml in the config directory. A
    key may be typed, too; it is kept in the vault or in the directory's .env, and never shown.

    A config.yaml that is there keeps its text: the difference is shown before it is written. Ctrl-C leaves all as it
    was. With --no-input the file is printed that would be written; exit code 3 if no model was found.
    """
    from .frame import person_at_terminal

    if not person_at_terminal(no_input=no_input):
        return _print_it(config_dir)
    return 0 if run_setup(config_dir) else 1


def run_setup(config_dir: str | None = None, *, starts: bool = False) -> bool:
    """Ask a person at the terminal; whether there is a configuration now. Blocks: no trio may run in this thread.

    Args:
        config_dir: as of the flag.
        starts: a conversation begins afterwards, and the last question says so.

    Raises:
        KeyboardInterrupt: Ctrl-C; nothing was written.
        click.exceptions.Exit: Ctrl-C or another signal during the test call; likewise.
        CallboardError: the file or the vault can't be read or written.
    """
    from ..actors.io.directories import config_dir as configured
    from .settings_warnings import already_printed
    from .wizard.asking import asker
    from .wizard.steps import Setup

    already_printed()
    person = asker()
    try:
        done = Setup(configured(config_dir, os.environ)[0], person, starts=starts).run()
    except EOFError:
        done = False
    if not done:
        person.say("nothing was written; `callboard setup` asks again")
    elif not starts:
        person.say('Try it: callboard ask "Say hello"')
    return done


def _print_it(config_dir: str | None) -> int:
    from ..actors.io.directories import config_dir as configured
    from ..actors.io.directories import config_file
    from ..protocol.errors import ConfigError
    from .wizard.steps import what_to_write

    home = configured(config_dir, os.environ)[0]
    text, found = what_to_write(home, dict(os.environ))
    if not found:
        raise ConfigError(text)
    sys.stderr.write(f"callboard: nothing is asked, and nothing is written; {config_file(home)} would be:\n")
    sys.stdout.write(text)
    return 0
