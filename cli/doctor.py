"""`callboard doctor`: what is installed, what is found, where things live. It changes nothing and never fails."""

from __future__ import annotations

import click

from .options import config_dir, text_or_json


@click.command("doctor", short_help="Show what is installed, which keys and interpreters are found.")
@text_or_json
@config_dir
def command(output: str, config_dir: str | None) -> int:
    """Shows versions, API keys (whether they are set, never what they are), interpreters for scripts and tools, the
    local model, and the config directory and where it was named.
    """
    import json
    import sys

    from .examination import as_text, examine

    found = examine(config_dir)
    sys.stdout.write(json.dumps(found, indent=2) + "\n" if output == "json" else as_text(found))
    return 0
