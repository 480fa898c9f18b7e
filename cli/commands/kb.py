"""`callboard kb`: list, make, build, inspect, search and export knowledge bases (RAG)."""

from __future__ import annotations

from typing import Any, get_args

import click

from ...protocol.languages import Language
from .. import options

_quiet = click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
_target = click.argument("target", shell_complete=options.complete_base)
_language = click.option(
    "--language",
    metavar="LANG",
    type=click.Choice(get_args(Language)),
    help=f"Whose words are reduced to their stems: {', '.join(get_args(Language))}.",
)


@click.group("kb", cls=options.ListByDefault, short_help="Build and search knowledge bases.")
def command() -> None:
    """Knowledge bases: documents that agents look things up in. Without a command: list.

    \b
    TARGET is one of
      handbook               a base with a name of its own (callboard kb new makes one)
      researcher             an agent: all that it looks things up in
      researcher:lookup      one rag node of it
      path/to/lookup.kb      the directory of a base
    """


@command.command("new", short_help="Name a knowledge base, and say what it is made of.")
@click.argument("name")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option("--description", metavar="TEXT", default="", help="What it is about, for people.")
@click.option("--embedding-model", metavar="MODEL", help="Model id (client:model) that makes the vectors.")
@click.option(
    "--chunk-size", metavar="N", callback=options.above_zero("characters", int), help="Characters of a chunk."
)
@click.option("--chunk-overlap", metavar="N", type=click.IntRange(min=0), help="Characters that neighbours may share.")
@_language
@options.config_dir
def new(**given: Any) -> str:
    """Writes NAME.yaml into knowledge/ of the config directory: it says what the base is made of. Nothing is read yet.

    SOURCE is a file, a directory, a glob ('docs/**/*.md', in quotes), a page, a site ('https://example.com/docs/**'),
    or LOADER:PATH for a loader of `document_loaders`.

    \b
    callboard kb new handbook ./docs
    callboard kb build handbook
    callboard ask --kb handbook "How long is the warranty?"
    """
    from ..actions.kb_targets import make_base

    return make_base(**given)


@command.command("list", short_help="List the knowledge bases.")
@options.output_and_config
def list_all(as_json: bool, config_dir: str | None) -> str:
    """Lists the bases with names of their own and those of your agents, and what is built of them."""
    from ..actions.kb_targets import list_bases

    return list_bases(config_dir, as_json=as_json)


@command.command("build", short_help="Build a base, or bring it up to date.")
@_target
@_quiet
@options.output_and_config
def build(target: str, quiet: bool, as_json: bool, config_dir: str | None) -> int:
    """Builds what TARGET has: reads what is new or has changed, and embeds that alone.

    Until it is done the old one is used. Whatever interrupts it, the same command goes on from there.
    """
    from ..actions.kb import build_bases

    return build_bases(target, config_dir, quiet=quiet, as_json=as_json)


@command.command("rebuild", short_help="Build a base anew, from nothing.")
@_target
@_quiet
@options.output_and_config
def rebuild(target: str, quiet: bool, as_json: bool, config_dir: str | None) -> int:
    """Builds what TARGET has anew, as after a change of the embedding model. Until it is done the old one is used."""
    from ..actions.kb import build_bases

    return build_bases(target, config_dir, quiet=quiet, as_json=as_json, rebuild=True)


@command.command("status", short_help="Show what is built, and whether it is up to date.")
@_target
@click.option("--pages", is_flag=True, help="Get web pages too, to see whether they have changed.")
@options.output_and_config
def status(target: str, pages: bool, as_json: bool, config_dir: str | None) -> int:
    """Shows size, model and age of a base, what could not be read, and which of its sources have changed since."""
    from ..actions.kb import show_status

    return show_status(target, config_dir, pages=pages, as_json=as_json)


@command.command("search", short_help="Look something up.")
@_target
@click.argument("query")
@click.option("--top-k", metavar="N", callback=options.above_zero("chunks", int), help="Chunks to find.")
@click.option(
    "--source",
    "sources",
    metavar="GLOB",
    multiple=True,
    help="Only in sources with such a name ('docs/*.md'; * stands for slashes too); repeatable.",
)
@click.option("--min-score", metavar="X", type=float, default=0.0, help="Only what scores higher than X.")
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "vector", "keyword"]),
    default="hybrid",
    show_default=True,
    help="By meaning, by words, or both.",
)
@click.option("--rerank", metavar="MODEL", help="The model that looks again at what was found, or none.")
@options.output_and_config
def search(**given: Any) -> int:
    """Shows what QUERY finds in TARGET, best first: score, source and lines, headings, text.

    It is what an agent would find. Exit code 1 if there is nothing.
    """
    from ..actions.kb import search_bases

    return search_bases(**given)


@command.command("export", short_help="Print all chunks as lines of JSON.")
@_target
@options.config_dir
def export(target: str, config_dir: str | None) -> int:
    """Prints every chunk of TARGET as a line of JSON: `id`, `source`, `lines`, `heading`, `text`."""
    from ..actions.kb import export_bases

    return export_bases(target, config_dir)


@command.command("drop", short_help="Remove what was built.")
@_target
@click.option("--yes", is_flag=True, help="Don't ask.")
@options.config_dir
def drop(target: str, yes: bool, config_dir: str | None) -> int:
    """Removes from the disk what was built of TARGET; asks first. Sources and recipes stay as they are."""
    from ..actions.kb import drop_bases

    return drop_bases(target, config_dir, yes=yes)
