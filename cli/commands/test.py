"""`callboard test`: run the test cases of agents and report failures."""

from __future__ import annotations

import click

from .. import options


@click.command("test", short_help="Run the test cases of agents.")
@click.argument("paths", metavar="[PATH]...", nargs=-1, shell_complete=options.complete_target)
@click.option("-k", "wanted", metavar="TEXT", default="", help="Run only cases with TEXT in their name or file.")
@click.option("--update", is_flag=True, help="Run the cases with models and tools, and record their cassettes again.")
@click.option("--live", is_flag=True, help="Run the cases with models and tools, and without cassettes.")
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Maximum number of concurrent cases.",
)
@click.option("--junit", metavar="FILE", help="Write the results as JUnit XML.")
@click.option("--json", "json_file", metavar="FILE", help="Write the results as JSON.")
@options.text_or_json
@click.option("-q", "--quiet", is_flag=True, help="Print only the cases that fail.")
@options.config_dir
def command(
    paths: tuple[str, ...],
    wanted: str,
    update: bool,
    live: bool,
    jobs: int,
    junit: str | None,
    json_file: str | None,
    as_json: bool,
    quiet: bool,
    config_dir: str | None,
) -> int:
    """Run the test cases of agents: those in tests.yaml next to an agent, and in tests/*.yaml of its directory. PATH is
    a file of cases, a directory to search, or the name of an agent; by default the working directory. Each case runs
    from its cassette, without a network and without processes.

    Exit codes: 0 all results are as expected, 1 some are not, 2 wrong usage or an invalid file.
    """
    if update and live:
        raise click.UsageError(
            "--update and --live contradict each other: --update runs the cases live, and records them."
        )
    from ..actions.test import TestFlags, run_cases

    return run_cases(
        paths,
        TestFlags(
            wanted=wanted,
            mode="update" if update else "live" if live else "replay",
            jobs=jobs,
            junit=junit,
            json=json_file,
            as_json=as_json,
            quiet=quiet,
            config_dir=config_dir,
        ),
    )
