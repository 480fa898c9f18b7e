"""`callboard setup` and `doctor`: the first configuration, and a check of the installation. The steps of `setup` are in
`..wizard`.
"""

from __future__ import annotations

import click

from .. import options


@click.command("setup", short_help="Choose a model, try it, and write config.yaml.")
@options.no_input
@options.config_dir
def setup(no_input: bool, config_dir: str | None) -> int:
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


@click.command("doctor", short_help="Show versions, interpreters, and which keys are set.")
@click.option("--models", "with_models", is_flag=True, help="Also check whether the models of config.yaml can be used.")
@click.option("--sandbox", "probes", is_flag=True, help="Try the sandbox with probes; exit code 1 if one fails.")
@options.output_and_config
def doctor(with_models: bool, probes: bool, as_json: bool, config_dir: str | None) -> str | int:
    """Show versions, API keys (whether they are set, never their values), interpreters for scripts and tools, the local
    model, and the config directory with the setting that named it.
    """
    if probes:
        from ..actions.doctor import probe_sandbox

        return probe_sandbox(as_json=as_json)
    from ..actions.doctor import as_text, examine
    from ..render.text import json_object

    found = examine(config_dir, with_models=with_models)
    return json_object(**found) if as_json else as_text(found)
