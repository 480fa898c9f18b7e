"""`callboard doctor`: what is installed, what is found, where things live. It changes nothing and never fails."""

from __future__ import annotations

import click

from .options import config_dir, text_or_json


@click.command("doctor", short_help="Show what is installed, which keys and interpreters are found.")
@text_or_json
@config_dir
def command(as_json: bool, config_dir: str | None) -> str:
    """Shows versions, API keys (whether they are set, never what they are), interpreters for scripts and tools, the
    local model, and the config directory and where it was named.
    """
    from .diagnostics import as_text, examine
    from .render.text import json_object

    found = examine(config_dir)
    return json_object(**found) if as_json else as_text(found)
