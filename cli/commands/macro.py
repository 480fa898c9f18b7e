"""`callboard macro`: run a macro. `callboard macros`: list macros, show one, and edit its file."""

from __future__ import annotations

from typing import Any

import click

from .. import options


@click.command(
    "macro",
    short_help="Run a macro: a sequence of chat lines.",
    # Words behind NAME are arguments of the macro, even if they begin with a dash.
    context_settings={"allow_interspersed_args": False},
)
@options.model
@options.permissions
@options.no_input
@options.dry_run
@options.limits
@options.loudness
@options.config_dir
@click.argument("name", shell_complete=options.complete_macro)
@click.argument("arguments", nargs=-1)
def macro(name: str, arguments: tuple[str, ...], **given: Any) -> int:
    """Run the macro NAME: each of its steps, in order, as if you had typed it into the chat.

    ARGUMENTS are the values of its variables; text from a pipe is one more. Flags precede NAME. Answers go to stdout,
    steps and progress to stderr. If a step fails, the macro ends with its exit code.

    \b
    callboard macro generate-commit-message
    callboard macro --yes review main
    """
    options.check_loudness(given)
    from ..actions.macro import run_macro

    return run_macro(name, arguments, given)


@click.group("macros", cls=options.ListByDefault, short_help="List, show and edit macros.")
def macros() -> None:
    """List, show and edit macros: sequences of chat lines, run by `callboard macro NAME`. Without a command: list.

    Your macros are YAML files in the config directory. A macro of yours hides the built-in one of the same name.
    """


@macros.command("list", short_help="List your macros and the built-in ones.")
@options.output_and_config
def list_all(as_json: bool, config_dir: str | None) -> str:
    """List your macros and the built-in ones, each with its variables and its description."""
    from ..actions.macros import list_macros

    return list_macros(config_dir, as_json=as_json)


@macros.command("show", short_help="Show a macro: file, variables, steps.")
@click.argument("name", shell_complete=options.complete_macro)
@options.output_and_config
def show(name: str, as_json: bool, config_dir: str | None) -> str:
    """Show the file, the variables, the steps and the problems of a macro."""
    from ..actions.macros import show_macro

    return show_macro(name, config_dir, as_json=as_json)


@macros.command("edit", short_help="Edit one of your macros, or create it.")
@click.argument("name", shell_complete=options.complete_macro)
@options.config_dir
def edit(name: str, config_dir: str | None) -> str:
    """Open a macro in your editor ($VISUAL, $EDITOR, else vi), then print its problems.

    A missing macro is created with an example. A built-in one is copied to the config directory first.
    """
    from ..actions.macros import edit_macro

    return edit_macro(name, config_dir)


@macros.command("delete", short_help="Delete one of your macros.")
@click.argument("name", shell_complete=options.complete_macro)
@options.config_dir
def delete(name: str, config_dir: str | None) -> str:
    """Delete the file of one of your macros. Built-in macros cannot be deleted."""
    from ..actions.macros import delete_macro

    return delete_macro(name, config_dir)


@macros.command("path", short_help="Print the directory of macros.")
@click.argument("name", required=False, shell_complete=options.complete_macro)
@options.config_dir
def path(name: str | None, config_dir: str | None) -> str:
    """Print the path of a macro's file; without NAME, the directory of your macros."""
    from ..actions.macros import path_of

    return path_of(name, config_dir) + "\n"
