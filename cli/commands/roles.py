"""`callboard roles`: list roles, show one, and save or edit its file."""

from __future__ import annotations

import sys

import click

from ..options import ListByDefault, complete_role, config_dir, output_and_config


@click.group("roles", cls=ListByDefault, short_help="List, show and edit roles.")
def command() -> None:
    """List, show and edit roles: system prompts and settings for a model without an agent, used by `callboard ask -r
    NAME`. Without a command: list.

    Your roles are Markdown files in the config directory. A role of yours hides the built-in one of the same name.
    """


@command.command("list", short_help="List your roles and the built-in ones.")
@output_and_config
def list_all(as_json: bool, config_dir: str | None) -> str:
    """List your roles and the built-in ones, each with its kind, its description, and its model."""
    from ..actions.roles import list_roles

    return list_roles(config_dir, as_json=as_json)


@command.command("show", short_help="Show a role: file, settings, prompt.")
@click.argument("name", shell_complete=complete_role)
@output_and_config
def show(name: str, as_json: bool, config_dir: str | None) -> str:
    """Show the file, the settings and the prompt of a role. Arguments (NAME#ONE#TWO) are inserted into the prompt."""
    from ..actions.roles import show_role

    return show_role(name, config_dir, as_json=as_json)


@command.command("edit", short_help="Edit one of your roles, or create it.")
@click.argument("name", shell_complete=complete_role)
@config_dir
def edit(name: str, config_dir: str | None) -> str:
    """Open a role in your editor ($VISUAL, $EDITOR, else vi), then print its problems.

    A missing role is created with a comment that explains the format. A built-in one is copied to the config directory
    first.
    """
    from ..actions.roles import edit_role

    return edit_role(name, config_dir)


@command.command("save", short_help="Store standard input as a role.")
@click.argument("name")
@click.option("--force", is_flag=True, help="Replace an existing role.")
@config_dir
def save(name: str, force: bool, config_dir: str | None) -> str:
    """Read a role from standard input, and store it as NAME if it has no errors."""
    from ..actions.roles import save_role

    return save_role(name, sys.stdin.buffer.read(), config_dir, force=force)


@command.command("delete", short_help="Delete one of your roles.")
@click.argument("name", shell_complete=complete_role)
@config_dir
def delete(name: str, config_dir: str | None) -> str:
    """Delete the file of one of your roles. Built-in roles cannot be deleted."""
    from ..actions.roles import delete_role

    return delete_role(name, config_dir)


@command.command("path", short_help="Print the directory of roles.")
@click.argument("name", required=False, shell_complete=complete_role)
@config_dir
def path(name: str | None, config_dir: str | None) -> str:
    """Print the path of a role's file; without NAME, the directory of your roles."""
    from ..actions.roles import path_of

    return path_of(name, config_dir) + "\n"
