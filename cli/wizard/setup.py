"""Setup of the first configuration, for `callboard setup` and for a chat without a configuration.

`actors.runs.setup.needed` determines cheaply whether it is needed.
"""

from __future__ import annotations

import os
import sys


def run_setup(config_dir: str | None = None, *, starts: bool = False) -> bool:
    """Ask the user at the terminal; return True if there is a configuration now. Blocks: this thread must not run trio.

    Args:
        config_dir: value of the flag.
        starts: a chat starts afterwards, and the last question says so.

    Raises:
        KeyboardInterrupt: the user pressed Ctrl-C; nothing was written.
        click.exceptions.Exit: Ctrl-C or another signal during the test call; nothing was written.
        CallboardError: the file or the vault can't be read or written.
    """
    from ...actors.io.directories import config_dir as configured
    from ..settings_warnings import already_printed
    from .prompts import asker
    from .steps import Setup

    already_printed()
    person = asker()
    try:
        done = Setup(configured(config_dir, os.environ)[0], person, starts=starts).run()
    except EOFError:
        done = False
    if not done:
        person.say("nothing was written; to start again: `callboard setup`")
    elif not starts:
        person.say('Try it: callboard ask "Say hello"')
    return done


def print_setup(config_dir: str | None) -> int:
    """Print the config.yaml that a setup without questions would write; returns the exit code.

    Raises:
        ConfigError: no model was found.
    """
    from ...actors.io.directories import config_dir as configured
    from ...actors.io.directories import config_file
    from ...protocol.errors import ConfigError
    from .steps import what_to_write

    home = configured(config_dir, os.environ)[0]
    text, found = what_to_write(home, dict(os.environ))
    if not found:
        raise ConfigError(text)
    sys.stderr.write(f"callboard: with --no-input nothing is written; {config_file(home)} would be:\n")
    sys.stdout.write(text)
    return 0
