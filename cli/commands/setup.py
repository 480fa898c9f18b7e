"""`callboard setup`: the first configuration, in a few questions. Its work is in `..wizard`."""

from __future__ import annotations

import click

from .. import options


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
    from ..frame import person_at_terminal
    from ..wizard.setup import print_setup, run_setup

    if not person_at_terminal(no_input=no_input):
        return print_setup(config_dir)
    return 0 if run_setup(config_dir) else 1
