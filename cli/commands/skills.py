"""`callboard skills`: list Agent Skills, show and check one, and write a new one."""

from __future__ import annotations

from pathlib import Path

import click

from .. import options


@click.group("skills", short_help="List, show, check and make Agent Skills.")
def command() -> None:
    """List, show and check Agent Skills: directories with a SKILL.md that agents read when a task needs it.

    Callboard searches the working directory, if you trust it (callboard trust), the config directory, ~/.agents/skills
    and ~/.claude/skills.
    """


def _complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from ..actions.skills import skill_names

    return [name for name in skill_names(ctx.params.get("config_dir")) if name.startswith(incomplete)]


@command.command("list", short_help="List the skills of this directory.")
@options.output_and_config
def list_all(as_json: bool, config_dir: str | None) -> str:
    """List the skills that agents may read in this directory, and the unusable ones with the reason."""
    from ..actions.skills import list_skills

    return list_skills(config_dir, as_json=as_json)


@command.command("show", short_help="Show a skill.")
@click.argument("name", shell_complete=_complete)
@options.output_and_config
def show(name: str, as_json: bool, config_dir: str | None) -> str:
    """Show the text that an agent reads of a skill, its directory, and its other files."""
    from ..actions.skills import show_skill

    return show_skill(name, config_dir, as_json=as_json)


@command.command("validate", short_help="Check skills against the standard.")
@click.argument("directory", nargs=-1, required=True, type=click.Path())
@click.option("--strict", is_flag=True, help="Treat warnings as errors, as the standard's own validator does.")
def validate(directory: tuple[str, ...], strict: bool) -> int:
    """Check directories with a SKILL.md against the open standard.

    A deviation that agents accept is a warning: an unknown key, or a name that differs from the directory's. Exit code
    2 if there is an error.
    """
    from ..actions.skills import validate_skills

    return validate_skills([Path(each) for each in directory], strict=strict)


@command.command("new", short_help="Make a skill.")
@click.argument("name")
@click.option("--user", is_flag=True, help="Write into the config directory, for all your work.")
@options.config_dir
def new(name: str, user: bool, config_dir: str | None) -> str:
    """Write the first file of a skill into .agents/skills of this directory."""
    from ..actions.skills import new_skill

    return new_skill(name, config_dir, of_user=user)
