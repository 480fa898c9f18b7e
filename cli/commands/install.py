"""`callboard install`: shared bundles of agents, roles, macros, tools, workflows and MCP servers."""

from __future__ import annotations

from typing import Any

import click

from .. import options


class _Sources(click.Group):
    """Command group in which a word that is not a command is the source of a bundle: `callboard install URL`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["from", *args]
        elif not args and not ctx.resilient_parsing:  # a word that is being completed may become a command
            args = ["list"]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # The flags of `from` are shown as those of the group: users don't type that word.
        click.Command.format_options(self.commands["from"], ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "GIT_URL[#REF] | DIR | --builtin | COMMAND [OPTIONS]")


_wishes = options.several(
    click.option("--force", is_flag=True, help="Replace existing files, and files that you have changed."),
    click.option("--yes", is_flag=True, help="Print the preview without asking."),
    options.no_input,
    options.config_dir,
)


@click.group("install", cls=_Sources, short_help="Install agents, roles, tools, ... from a git repository.")
def command() -> None:
    """Install bundles: agents, roles, macros, tools, workflows and MCP servers from a git repository or a directory.

    The command lists the programs that the bundle can run, and asks. It runs nothing of the bundle during the
    installation.

    \b
      callboard install https://example.org/team/agents.git#v2 --filter roles
      callboard install ./my-bundle
      callboard install --builtin --filter agents/coder
    """


@command.command("from", hidden=True)
@click.argument("source", metavar="GIT_URL[#REF]|DIR", required=False)
@click.option("--builtin", is_flag=True, help="Copy built-in files to the config directory, so that you can edit them.")
@click.option(
    "--filter",
    "filters",
    metavar="WHAT",
    multiple=True,
    shell_complete=options.complete_kind,
    help="Install only these: agents, roles, macros, tools, workflows, mcp, a name, or both "
    "(agents/coder); repeatable, or with commas.",
)
@click.option("--path", metavar="DIR", default="", help="Directory of the bundle in the repository.")
@_wishes
def source(source: str | None, builtin: bool, filters: tuple[str, ...], path: str, **given: Any) -> int:
    """Install a bundle from a git repository or a directory."""
    if builtin == (source is not None):
        raise click.UsageError("Give a git URL, a directory, or --builtin.")
    from ..actions.install import install_bundle

    chosen = tuple(part.strip() for each in filters for part in each.split(",") if part.strip())
    return install_bundle(source, filters=chosen, path=path, **given)


@command.command("list", short_help="List the installed bundles.")
@options.output_and_config
def list_all(as_json: bool, config_dir: str | None) -> str:
    """List the installed bundles, their sources, and the files of them that you have changed."""
    from ..actions.install import list_bundles

    return list_bundles(config_dir, as_json=as_json)


def _complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from ..actions.install import bundle_names

    return [name for name in bundle_names(ctx.params.get("config_dir")) if name.startswith(incomplete)]


@command.command("update", short_help="Fetch bundles again, and install the changes.")
@click.argument("name", required=False, shell_complete=_complete)
@_wishes
def update(name: str | None, **given: Any) -> int:
    """Fetch a bundle again, or all bundles. Show the changes and the programs that they can run, and ask.

    Files that you have changed since are kept, and listed.
    """
    from ..actions.install import update_bundles

    return update_bundles(name, **given)


@command.command("remove", short_help="Delete the files of a bundle.")
@click.argument("name", shell_complete=_complete)
@_wishes
def remove(name: str, **given: Any) -> int:
    """Delete the files and MCP servers of a bundle. Files that you have changed since are kept, and listed."""
    from ..actions.install import remove_bundle

    return remove_bundle(name, **given)
