"""`callboard roles`: list roles, show one, and save or edit its file."""

from __future__ import annotations

import sys

import click

from ..options import ListByDefault, complete_role, config_dir, output_and_config


@click.group("roles", cls=ListByDefault, short_help="List, show and edit roles.")
def command() -> None:
    """Roles say how a model answers where no agent does: callboard ask -r NAME. Without a command: list.

    Yours are Markdown files in the config directory; one hides the built-in role of its name.
    """


@command.command("list", short_help="List the roles that can be named.")
@output_and_config
def list_all(as_json: bool, config_dir: str | None) -> str:
    """Lists your roles and the built-in ones, each with its kind, what it is for, and the model it names."""
    from ..actions.roles import list_roles

    return list_roles(config_dir, as_json=as_json)


@command.command("show", short_help="Show all about a role.")
@click.argument("name", shell_complete=complete_role)
@output_and_config
def show(name: str, as_json: bool, config_dir: str | None) -> str:
    """Shows a role's file, its settings and its prompt; with arguments (NAME#ONE#TWO) as they are put in."""
    from ..actions.roles import show_role

    return show_role(name, config_dir, as_json=as_json)


@command.command("edit", short_help="Edit a role of yours, or begin one.")
@click.argument("name", shell_complete=complete_role)
@config_dir
def edit(name: str, config_dir: str | None) -> str:
    """Opens a role in your editor ($VISUAL, $EDITOR, else vi), and says what is wrong with it afterwards.

    A role that is not there is begun with a comment that explains it. A built-in one is copied to the config directory
    first.
    """
    from ..actions.roles import edit_role

    return edit_role(name, config_dir)


@command.command("save", short_help="Keep standard input as a role.")
@click.argument("name")
@click.option("--force", is_flag=True, help="Replaces a role that is there already.")
@config_dir
def save(name: str, force: bool, config_dir: str | None) -> str:
    """Reads a role from standard input and keeps it as NAME, if it has no errors."""
    from ..actions.roles import save_role

    return save_role(name, sys.stdin.buffer.read(), config_dir, force=force)


@command.command("delete", short_help="Delete a role of yours.")
@click.argument("name", shell_complete=complete_role)
@config_dir
def delete(name: str, config_dir: str | None) -> str:
    """Deletes the file of a role of yours. Built-in ones stay."""
    from ..actions.roles import delete_role

    return delete_role(name, config_dir)


@command.command("path", short_help="Print where roles live.")
@click.argument("name", required=False, shell_complete=complete_role)
@config_dir
def path(name: str | None, config_dir: str | None) -> str:
    """Prints the file of a role; without NAME, the directory in which your roles live."""
    from ..actions.roles import path_of

    return path_of(name, config_dir) + "\n"
