"""What `callboard agents new` writes: an agent with a tool, or one of the graphs of `callboard init`."""

from __future__ import annotations

import os
import re
import shlex
from importlib.resources import files
from pathlib import Path

from ..actors.io.directories import config_dir as configured
from ..actors.runs.finding import built_in_agents
from ..protocol.errors import UsageError
from ..protocol.problems import did_you_mean
from .init import PROMPTS, copied, write_files

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

PROMPT = "How many words has this sentence?"

CONFIG = """\
# What this agent is and what it may do. All keys: callboard schema agent
#
#   callboard run NAME "How many words has this sentence?"
#   callboard agents show NAME
name: NAME  # the same as the directory's
description: Answers questions about texts.

# model: openai:gpt-4o-mini       # without it, the model of your settings, or the one you give with -m
# temperature: 0.2

# The system prompt. {{tone}} is the variable below; {{__cwd__}}, {{__now__}} and more are known to all agents.
instructions: |
  You answer questions about texts in a {{tone}} way. Be brief.
  Count with the tool count_words; do not guess.

# Values from outside: callboard run NAME --var tone=stern "..."
variables:
  - name: tone
    description: How it answers.
    default: friendly

# Every function in tools.py is a tool of this agent. Beside them it may call these (callboard tools lists them all).
global_tools:
  - get_current_time
  # - fs_read                     # reads files below the directory that you start it in
  # - execute_command             # asks you before it runs anything

# mcp_servers: [time]             # servers of mcp.json that lend it tools (callboard mcp init writes one)

# auto_continue: true             # keeps a todo list, and goes on while something on it is open
# can_spawn_agents: true          # has other agents work beside it
can_ask_user: false               # true lets it ask you when it can't go on; small models ask where they should answer

conversation_starters:
  - "How many words has this sentence?"
"""

TOOLS = '''\
"""The tools of this agent: every function that does not begin with `_` is one.

The model is told the name, the docstring and the types. What is returned is told as JSON, or as it is if it is text.
To try one by hand: callboard tools call count_words --agent NAME --json '{"text": "one two three"}'
"""


def count_words(text: str, longest: int = 3) -> dict:
    """Counts the words and characters of a text.

    Args:
        text: the text.
        longest: how many of the longest words to return.
    """
    words = [word.strip(".,;:!?()") for word in text.split()]
    return {
        "words": len(words),
        "characters": len(text),
        "longest": sorted(set(words), key=len, reverse=True)[:longest],
    }
'''


def make_agent(name: str, config_dir: str | None) -> str:
    """Writes an agent with a tools file; what to tell the user.

    Raises:
        UsageError: the name won't do, is taken, or the directory can't be written.
    """
    home = _home(name, config_dir)
    config = CONFIG.replace("name: NAME", f"name: {_in_yaml(name)}").replace("NAME", name)
    contents = {home / "config.yaml": config, home / "tools.py": TOOLS.replace("NAME", name)}
    return _written({path: text.encode() for path, text in contents.items()}, name, PROMPT)


def make_graph(name: str, template: str, config_dir: str | None) -> str:
    """Writes a copy of one of our graphs under this name; what to tell the user. Raises as `make_agent` does."""
    if template not in PROMPTS:
        hint = did_you_mean(template, PROMPTS) or f"there are: {', '.join(PROMPTS)}"
        raise UsageError(f"there is no template '{template}'; {hint}")
    home = _home(name, config_dir)
    source = files(__package__.partition(".")[0]).joinpath("examples", "agents", template)
    contents = {path: entry.read_bytes() for path, entry in copied(source, home).items()}
    graph = home / "graph.yaml"
    renamed = re.sub(rb"(?m)^name:[^#\n]*", f"name: {_in_yaml(name)}".encode(), contents[graph], count=1)
    return _written({**contents, graph: renamed}, name, PROMPTS[template])


def _home(name: str, config_dir: str | None) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' can't be an agent's name: it takes letters, digits, '-', '_' and '.', and begins with a letter"
            " or a digit"
        )
    home = configured(config_dir, os.environ)[0] / "agents" / name
    if home.exists():
        raise UsageError(f"{home} is there already and was left alone; choose another name")
    return home


def _in_yaml(name: str) -> str:
    """The name as a YAML text: with quotes if it would be a number, a date or a truth without them."""
    import yaml

    return name if yaml.safe_load(name) == name else f'"{name}"'


def _written(contents: dict[Path, bytes], name: str, prompt: str) -> str:
    write_files(contents)
    wrote = "".join(f"wrote {path}\n" for path in contents)
    if name in built_in_agents():
        wrote += f"from now on '{name}' means this one: it hides the built-in agent of that name\n"
    return f"{wrote}\ncallboard run {name} {shlex.quote(prompt)}\n"
