"""`callboard kb`: list, make, build, inspect, search and export knowledge bases (RAG)."""

from __future__ import annotations

from typing import Any, get_args

import click

from ...protocol.languages import Language
from .. import options

_quiet = click.option("-q", "--quiet", is_flag=True, help="Print no progress on stderr.")
_target = click.argument("target", shell_complete=options.complete_base)
_language = click.option(
    "--language",
    metavar="LANG",
    type=click.Choice(get_args(Language)),
    help=f"Language for stemming of words: {', '.join(get_args(Language))}.",
)


@click.group("kb", cls=options.ListByDefault, short_help="Build and search knowledge bases.")
def command() -> None:
    """Build and search knowledge bases: indexed documents that agents search (RAG). Without a command: list.

    \b
    TARGET is one of
      handbook               a base with its own name (callboard kb new makes one)
      researcher             an agent: all of its bases
      researcher:lookup      one rag node of an agent
      path/to/lookup.kb      the directory of a base
    """


@command.command("new", short_help="Name a knowledge base, and list its sources.")
@click.argument("name")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option("--description", metavar="TEXT", default="", help="Description for users.")
@click.option("--embedding-model", metavar="MODEL", help="Model (client:model) that computes the embeddings.")
@click.option(
    "--chunk-size", metavar="N", callback=options.above_zero("characters", int), help="Maximum characters of a chunk."
)
@click.option(
    "--chunk-overlap",
    metavar="N",
    type=click.IntRange(min=0),
    help="Maximum characters that neighbouring chunks share.",
)
@_language
@options.config_dir
def new(**given: Any) -> str:
    """Write NAME.yaml, which lists the sources of the base, into knowledge/ of the config directory. No source is read
    yet.

    SOURCE is a file, a directory, a glob ('docs/**/*.md', in quotes), a page, a site ('https://example.com/docs/**'),
    or LOADER:PATH for a loader of `document_loaders`.

    \b
    callboard kb new handbook ./docs
    callboard kb build handbook
    callboard ask --kb handbook "How long is the warranty?"
    """
    from ..actions.kb import make_base

    return make_base(**given)


@command.command("list", short_help="List the knowledge bases.")
@options.output_and_config
def list_all(as_json: bool, config_dir: str | None) -> str:
    """List the named bases and the bases of your agents, with the state of each."""
    from ..actions.kb import list_bases

    return list_bases(config_dir, as_json=as_json)


@command.command("build", short_help="Build a base, or update it.")
@_target
@_quiet
@options.output_and_config
def build(target: str, quiet: bool, as_json: bool, config_dir: str | None) -> int:
    """Build the bases of TARGET, or update them: only new and changed sources are read and embedded.

    The old base stays in use until the build is complete. After an interruption, the same command continues the build.
    """
    from ..actions.kb import build_bases

    return build_bases(target, config_dir, quiet=quiet, as_json=as_json)


@command.command("rebuild", short_help="Build a base again from nothing.")
@_target
@_quiet
@options.output_and_config
def rebuild(target: str, quiet: bool, as_json: bool, config_dir: str | None) -> int:
    """Build the bases of TARGET again from nothing, for example after a change of the embedding model. The old base
    stays in use until the build is complete.
    """
    from ..actions.kb import build_bases

    return build_bases(target, config_dir, quiet=quiet, as_json=as_json, rebuild=True)


@command.command("status", short_help="Show the built base, and sources that have changed.")
@_target
@click.option("--pages", is_flag=True, help="Also fetch web pages, to find changes.")
@options.output_and_config
def status(target: str, pages: bool, as_json: bool, config_dir: str | None) -> int:
    """Show size, model and age of a base, its unreadable sources, and the sources that have changed since the build."""
    from ..actions.kb import show_status

    return show_status(target, config_dir, pages=pages, as_json=as_json)


@command.command("search", short_help="Search a base.")
@_target
@click.argument("query")
@click.option("--top-k", metavar="N", callback=options.above_zero("chunks", int), help="Number of chunks to find.")
@click.option(
    "--source",
    "sources",
    metavar="GLOB",
    multiple=True,
    help="Search only sources with a matching name ('docs/*.md'; * also matches slashes); repeatable.",
)
@click.option("--min-score", metavar="X", type=float, default=0.0, help="Find only chunks with a score above X.")
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "vector", "keyword"]),
    default="hybrid",
    show_default=True,
    help="Search by meaning, by words, or both.",
)
@click.option("--rerank", metavar="MODEL", help="Model that reranks the results, or none.")
@options.output_and_config
def search(**given: Any) -> int:
    """Print the passages of TARGET that QUERY finds, best first: score, source and lines, headings, text.

    An agent would find the same passages. Exit code 1 if there are none.
    """
    from ..actions.kb import search_bases

    return search_bases(**given)


@command.command("export", short_help="Print all chunks as lines of JSON.")
@_target
@options.config_dir
def export(target: str, config_dir: str | None) -> int:
    """Print every chunk of TARGET as a line of JSON: `id`, `source`, `lines`, `heading`, `text`."""
    from ..actions.kb import export_bases

    return export_bases(target, config_dir)


@command.command("drop", short_help="Delete the built files.")
@_target
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.config_dir
def drop(target: str, yes: bool, config_dir: str | None) -> int:
    """Delete the built files of TARGET, after a question. Sources and recipes stay."""
    from ..actions.kb import drop_bases

    return drop_bases(target, config_dir, yes=yes)
