"""`callboard setup`: the first configuration, in a few questions. Its work is in `..wizard`."""

from __future__ import annotations

import click

from .. import options


@click.command("setup", short_help="Choose a model, try it, and write config.yaml.")
@options.no_input
@options.config_dir
def command(no_input: bool, config_dir: str | None) -> int:
    """Choose a model, try it, and write config.yaml in the config directory.

    Look for API keys in the environment and for model servers on this machine (Ollama, LM Studio, llama.cpp, vLLM). Ask
    which model to use, send it a prompt of one word, and write the file. You can also type a key: it is stored in the
    vault or in the .env file of the config directory, and never displayed.

    An existing config.yaml keeps its text, and the difference is shown before it is written. Ctrl-C changes nothing.
    With --no-input, print the file instead of writing it; exit code 3 if no model was found.
    """
    from ..frame import person_at_terminal
    from ..wizard.setup import print_setup, run_setup

    if not person_at_terminal(no_input=no_input):
        return print_setup(config_dir)
    return 0 if run_setup(config_dir) else 1
