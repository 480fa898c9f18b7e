"""`callboard skills`: the Agent Skills that there are, and one's own."""

from __future__ import annotations

from pathlib import Path

import click

from . import options


@click.group("skills", short_help="List, show, check and begin Agent Skills.")
def command() -> None:
    """Agent Skills: directories with a SKILL.md, which agents read when they want to do what one is for.

    They are looked for in the directory that you work in, if you trust it (callboard trust), in the configuration
    directory, in ~/.agents/skills and in ~/.claude/skills.
    """


def _complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from .skill_catalog import names

    return [name for name in names(ctx.params.get("config_dir")) if name.startswith(incomplete)]


@command.command("list", short_help="List the skills that agents may read here.")
@options.output_and_config
def list_all(as_json: bool, config_dir: str | None) -> str:
    """Lists the skills that agents may read in this directory, and those that can't be used, with the reason."""
    from .skill_catalog import listed

    return listed(config_dir, as_json=as_json)


@command.command("show", short_help="Show a skill.")
@click.argument("name", shell_complete=_complete)
@options.output_and_config
def show(name: str, as_json: bool, config_dir: str | None) -> str:
    """Shows what an agent reads of a skill, where it lies, and the files beside it."""
    from .skill_catalog import shown

    return shown(name, config_dir, as_json=as_json)


@command.command("validate", short_help="Check skills by the standard.")
@click.argument("directory", nargs=-1, required=True, type=click.Path())
def validate(directory: tuple[str, ...]) -> int:
    """Checks directories with a SKILL.md by the open standard; what it does not know is an error.

    Exit code 2 if there is one.
    """
    from .skill_catalog import validated

    return validated([Path(each) for each in directory])


@command.command("new", short_help="Begin a skill.")
@click.argument("name")
@click.option("--user", is_flag=True, help="In the configuration directory, for all your work.")
@options.config_dir
def new(name: str, user: bool, config_dir: str | None) -> str:
    """Writes the first files of a skill, in .agents/skills of this directory."""
    from .skill_catalog import begun

    return begun(name, config_dir, of_user=user)
