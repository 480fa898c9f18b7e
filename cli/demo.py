"""`callboard demo`: the agent of examples/agents/demo, on whatever model there is.

It is what a newcomer types first, on a machine that may have nothing yet. So whatever is missing is fetched (the
weights of the small local model, with progress) or named with the command that installs it, and the last lines say
what to try next. A person at the terminal is asked what the graph asks; without one the answer is `send`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from . import options

AGENT = Path(__file__).parents[1] / "examples/agents/demo"
MESSAGE = "Since this morning the app shows an error and I cannot pay my order. Please help, it is urgent!"
ANSWER = "send"
"""What is said to its question where no person can be asked."""

NEXT = (
    ("init my-graph", "a graph of your own, from a template"),
    ("agents new clerk", "an agent with a tool of its own"),
    ("doctor", "which models, keys and extras are found here"),
)
"""Commands to try after it, and what they give."""


@click.command("demo", short_help="Watch a small graph agent at work.")
@click.argument("message", metavar="[MESSAGE]", required=False)
@options.model
@options.no_input
@options.loudness
@options.config_dir
def command(message: str | None, **given: Any) -> int:
    """Runs a graph that sorts MESSAGE for a help desk, drafts a reply and asks before it is sent.

    It runs on the model of your configuration or key, else on a very small one that runs on this machine: its
    weights (93 MB) are fetched first if they are not here. `-m local:smollm2` takes that one in any case.
    """
    options.check_loudness(given)
    _fetch(given["model"] or _usual_model(given["config_dir"]), quiet=given["quiet"])
    from ..protocol.requests import RunRequest
    from .frame import person_at_terminal
    from .running import RunFlags, play_run

    prompt = message or MESSAGE
    no_input = not person_at_terminal(no_input=given.pop("no_input"))
    if not given["quiet"]:
        sys.stderr.write(f'callboard run {AGENT} "{prompt}"\n')
    answers = [ANSWER] if no_input else None
    request = RunRequest(target=str(AGENT), prompt=prompt, model=given.pop("model"), answers=answers)
    code = play_run(request, RunFlags(reads_stdin=False, no_input=no_input, output="text", **given))
    if code == 0 and not given["quiet"]:
        sys.stdout.flush()
        sys.stderr.write(_next_steps())
    return code


def _next_steps() -> str:
    """What to try next, in words that work here: an environment that is not activated has no `callboard`."""
    program = "callboard" if shutil.which("callboard") else sys.argv[0]
    width = max(len(command) for command, _ in NEXT)
    lines = [f"  {program} {command:<{width}}   {gives}" for command, gives in NEXT]
    return "\n".join(["", "Try next:", *lines, ""])


def _usual_model(config_dir: str | None) -> str:
    """The model of a run that names none.

    Raises:
        ConfigError: config.yaml can't be read.
    """
    from ..actors.io.directories import config_dir as configured
    from ..actors.io.settings import load_settings
    from ..actors.work.models.catalog import Catalog

    settings, _problems = load_settings(configured(config_dir, os.environ)[0])
    return Catalog(settings, os.environ).choice().model


def _fetch(model: str, *, quiet: bool) -> None:
    """Have the weights of a local model here.

    Raises:
        ConfigError: the engine is not installed; it says what else there is.
    """
    from ..actors.work.models import weights
    from ..actors.work.models.engines import require_engine
    from ..protocol.errors import ConfigError

    provider, _, name = model.partition(":")
    if provider != "local" or name not in weights.KNOWN or weights.KNOWN[name].kind != "chat":
        return
    try:
        require_engine()
    except ConfigError as error:
        raise ConfigError(
            f"there is no model yet: {error}\n    or set OPENAI_API_KEY or ANTHROPIC_API_KEY, and the demo runs on that"
        ) from error
    if not weights.KNOWN[name].are_in(weights.directory(os.environ)):
        from .pulling import pull_weights

        pull_weights(name, quiet=quiet)
