"""Output of `callboard --help`: the most used commands in groups; with `--all` every command.

The short form fits a terminal of 80 columns and 40 rows, and imports only the modules of its own commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

GROUPS: dict[str, tuple[str, ...]] = {
    "Talk": ("chat", "ask", "run", "batch", "demo", "setup", "doctor", "models"),
    "Write": (
        *("init", "agents", "validate", "test", "graph", "tools", "mcp", "kb", "skills", "roles"),
        *("macro", "macros", "install", "schema"),
    ),
    "Watch": ("ps", "top", "attach", "answer", "stop", "logs", "runs", "show", "usage", "sessions"),
    "Resume": ("resume", "fork", "replay"),
    "Serve": ("serve", "acp", "keys", "worker", "cluster"),
    "Secrets and trust": ("vault", "auth", "permissions", "trust"),
    "Compatibility": ("loki", "convert", "completion", "shell-init"),
}
"""Commands by purpose, the most used first."""

USUAL = frozenset((
    *("chat", "ask", "run", "demo", "setup", "doctor", "init", "agents", "validate", "test", "tools", "mcp", "kb"),
    *("ps", "answer", "usage", "resume", "serve", "vault", "loki"),
))  # fmt: skip
"""The twenty commands of the short form."""

_LEAD = "Run LLM agents, written in YAML, in one supervised process."
_FOOT = "callboard --help --all: every command, and the options"


def write_help(group: click.Group, ctx: click.Context, formatter: click.HelpFormatter, *, everything: bool) -> None:
    """Write the help of the program."""
    formatter.write("Usage: callboard [COMMAND] [OPTIONS] [ARGS]...; without a command: a chat\n\n")
    formatter.write(f"{_LEAD}\n")
    width = max(len(name) for names in GROUPS.values() for name in names if everything or name in USUAL)
    for title, names in GROUPS.items():
        formatter.write(f"\n{title}\n")
        for name in names:
            if everything or name in USUAL:
                command = group.get_command(ctx, name)
                assert command is not None
                formatter.write(f"  {name:<{width}}  {command.get_short_help_str(limit=200)}\n")
    if not everything:
        formatter.write(f"\n{_FOOT}\n")
        return
    formatter.write("\nOptions\n")
    formatter.write("  -V, --version  Show the version and exit.\n")
    formatter.write("  -h, --help     Show the usual commands, with --all every one.\n")
    formatter.write(
        "\nA TEXT in quotes is one prompt: callboard [FLAGS] TEXT\n(callboard loki --help has the flags).\n"
    )
