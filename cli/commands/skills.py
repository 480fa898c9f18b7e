"""`callboard skills`: list Agent Skills, show and check one, and write a new one."""

from __future__ import annotations

from pathlib import Path

import click

from .. import options


@click.group("skills", short_help="List, show, check and begin Agent Skills.")
def command() -> None:
    """Agent Skills: directories with a SKILL.md, which agents read when they want to do what one is for.

    They are looked for in the directory that you work in, if you trust it (callboard trust), in the configuration
    directory, in ~/.agents/skills and in ~/.claude/skills.
    """


def _complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from ..actions.skills import skill_names

    return [name for name in skill_names(ctx.params.get("config_dir")) if name.startswith(incomplete)]


@command.command("list", short_help="List the skills that agents may read here.")
@options.output_and_config
def list_all(as_json: bool, config_dir: str | None) -> str:
    """Lists the skills that agents may read in this directory, and those that can't be used, with the reason."""
    from ..actions.skills import list_skills

    return list_skills(config_dir, as_json=as_json)


@command.command("show", short_help="Show a skill.")
@click.argument("name", shell_complete=_complete)
@options.output_and_config
def show(name: str, as_json: bool, config_dir: str | None) -> str:
    """Shows what an agent reads of a skill, where it lies, and the files beside it."""
    from ..actions.skills import show_skill

    return show_skill(name, config_dir, as_json=as_json)


@command.command("validate", short_help="Check skills by the standard.")
@click.argument("directory", nargs=-1, required=True, type=click.Path())
@click.option("--strict", is_flag=True, help="Treat warnings as errors, as the standard's own validator does.")
def validate(directory: tuple[str, ...], strict: bool) -> int:
    """Checks directories with a SKILL.md by the open standard.

    What agents read in spite of it is a warning: a key that the standard does not know, a name that is not the
    directory's. Exit code 2 if there is an error.
    """
    from ..actions.skills import validate_skills

    return validate_skills([Path(each) for each in directory], strict=strict)


@command.command("new", short_help="Begin a skill.")
@click.argument("name")
@click.option("--user", is_flag=True, help="In the configuration directory, for all your work.")
@options.config_dir
def new(name: str, user: bool, config_dir: str | None) -> str:
    """Writes the first files of a skill, in .agents/skills of this directory."""
    from ..actions.skills import new_skill

    return new_skill(name, config_dir, of_user=user)
