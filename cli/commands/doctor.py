"""`callboard doctor`: installed packages, keys and interpreters, and probes of the sandbox."""

from __future__ import annotations

import click

from ..options import output_and_config


@click.command("doctor", short_help="Show versions, interpreters, and which keys are set.")
@click.option("--models", "with_models", is_flag=True, help="Also check whether the models of config.yaml can be used.")
@click.option("--sandbox", "probes", is_flag=True, help="Try the sandbox with probes; exit code 1 if one fails.")
@output_and_config
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
