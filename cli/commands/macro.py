"""`callboard macro`: run a macro. `callboard macros`: list macros, show one, and edit its file."""

from __future__ import annotations

from typing import Any

import click

from .. import options


@click.command(
    "macro",
    short_help="Run a macro: lines of the chat, one after another.",
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
    """Plays the macro NAME: each of its steps, in order, as if you had typed it into the chat.

    ARGUMENTS are the values of its variables; text piped in is one more. Flags stand before NAME. The answers are on
    stdout, the steps and what goes on on stderr. A step that fails ends the macro with its exit code.

    \b
    callboard macro generate-commit-message
    callboard macro --yes review main
    """
    options.check_loudness(given)
    from ..actions.macro import run_macro

    return run_macro(name, arguments, given)


@click.group("macros", cls=options.ListByDefault, short_help="List, show and edit macros.")
def macros() -> None:
    """Macros are lines of the chat that are played one after another: callboard macro NAME. Without a command: list.

    Yours are YAML files in the config directory; one hides the built-in macro of its name.
    """


@macros.command("list", short_help="List the macros that can be named.")
@options.output_and_config
def list_all(as_json: bool, config_dir: str | None) -> str:
    """Lists your macros and the built-in ones, each with its variables and what it is for."""
    from ..actions.macros import list_macros

    return list_macros(config_dir, as_json=as_json)


@macros.command("show", short_help="Show all about a macro.")
@click.argument("name", shell_complete=options.complete_macro)
@options.output_and_config
def show(name: str, as_json: bool, config_dir: str | None) -> str:
    """Shows a macro's file, its variables, its steps and what is odd about it."""
    from ..actions.macros import show_macro

    return show_macro(name, config_dir, as_json=as_json)


@macros.command("edit", short_help="Edit a macro of yours, or begin one.")
@click.argument("name", shell_complete=options.complete_macro)
@options.config_dir
def edit(name: str, config_dir: str | None) -> str:
    """Opens a macro in your editor ($VISUAL, $EDITOR, else vi), and says what is wrong with it afterwards.

    A macro that is not there is begun with an example. A built-in one is copied to the config directory first.
    """
    from ..actions.macros import edit_macro

    return edit_macro(name, config_dir)


@macros.command("delete", short_help="Delete a macro of yours.")
@click.argument("name", shell_complete=options.complete_macro)
@options.config_dir
def delete(name: str, config_dir: str | None) -> str:
    """Deletes the file of a macro of yours. Built-in ones stay."""
    from ..actions.macros import delete_macro

    return delete_macro(name, config_dir)


@macros.command("path", short_help="Print where macros live.")
@click.argument("name", required=False, shell_complete=options.complete_macro)
@options.config_dir
def path(name: str | None, config_dir: str | None) -> str:
    """Prints the file of a macro; without NAME, the directory in which your macros live."""
    from ..actions.macros import path_of

    return path_of(name, config_dir) + "\n"
