"""`callboard ps`, `top`, `attach`, `answer`, `stop` and `logs`: clients of a server. Their work is in `..control`."""

from __future__ import annotations

import sys
from typing import Any

import click

from .. import options


@click.command("ps", short_help="List the runs that are under way.")
@click.option("-a", "--all", "past", is_flag=True, help="Include past runs, the newest first.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="With -a: maximum number of runs.",
)
@options.text_or_json
@options.server
def ps(past: bool, limit: int, as_json: bool, url: str | None, token: str | None) -> str:
    """List the runs under way on the newest `callboard serve` of this user, or on the server at --url: duration, open
    questions, usage, and current activity. Runs of `callboard run` and `ask` at other terminals are listed too, with
    their process; watch and stop them there.

    Exit code 3 if there is neither a server nor such a run, 6 if the server does not answer.
    """
    from ..control.commands.listing import list_runs
    from ..control.servers import Where

    return list_runs(Where(url=url, token=token), past=past, limit=limit, as_json=as_json)


@click.command("top", short_help="Watch the actors of a server, and control them.")
@click.argument("run", required=False, shell_complete=options.complete_run)
@options.text_or_json
@options.server
def top(run: str | None, as_json: bool, url: str | None, token: str | None) -> int | str:
    """Show all actors of a server, or those of RUN: place in the tree, state, kind, waiting messages, current activity
    and its duration, usage, restarts, number of events, and the last event.

    \b
    Keys: arrows or j k move, enter shows details, c cancels (asks first), p pauses and resumes,
    a answers a question, / filters, s sorts by the next column, S reverses the order, q quits.

    If stdout is not a terminal, and with -o json, print the present state once.
    """
    from ..control.commands import top
    from ..control.servers import Where
    from ..render.text import redrawable

    where = Where(url=url, token=token)
    if not as_json and sys.stdin.isatty() and redrawable(sys.stdout):
        return top.watch(where, run)
    return top.snapshot(where, run, as_json=as_json)


@click.command("attach", short_help="Watch a run of a server, and answer its questions.")
@click.argument("run", shell_complete=options.complete_run)
@options.no_input
@options.result_form
@options.loudness
@options.server
def attach(**given: Any) -> int:
    """Show RUN (its id, or the beginning of it) from its beginning to its end, as `callboard run` does: progress on
    stderr, questions at the terminal, the result on stdout, and the exit code of the run.

    The run does not depend on this command: Ctrl-C only detaches, with exit code 130. Any number of terminals can be
    attached. The first answer to a question counts, and the other terminals show it.

    Exit code 3 if no server runs, 6 if the connection is lost.
    """
    options.check_loudness(given)
    from .. import logging
    from ..control.commands.following import attach as follow_run

    logging.configure()
    return follow_run(**given)


@click.command("answer", short_help="List open questions of a server's runs, or answer one.")
@click.argument("question", required=False, shell_complete=options.complete_run)
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@options.text_or_json
@options.server
def answer(question: str | None, texts: tuple[str, ...], as_json: bool, url: str | None, token: str | None) -> str:
    """Answer QUESTION (its id, or a run with exactly one open question) with TEXT. Without TEXT, ask the question at
    the terminal. Without QUESTION, list all open questions. `-` as TEXT reads the answer from standard input. A
    question with checkboxes accepts several TEXTs.

    Exit code 2 if no such question is open, if another client was faster, or if TEXT is not a valid answer.
    """
    from ..control.commands import answering
    from ..control.servers import Where

    where = Where(url=url, token=token)
    if question is None:
        return answering.list_questions(where, as_json=as_json)
    return answering.answer_question(where, question, answering.read_text(texts), as_json=as_json)


@click.command("stop", short_help="End runs of a server, or actors in them.")
@click.argument("targets", metavar="RUN|ACTOR...", nargs=-1, required=True, shell_complete=options.complete_run)
@options.text_or_json
@options.server
def stop(targets: tuple[str, ...], as_json: bool, url: str | None, token: str | None) -> str:
    """Cancel each RUN (its id, or the beginning of it) and wait for its end. A path (`callboard top` shows them)
    cancels that actor with all actors below it; the run decides how to continue.

    A run or actor that had already ended is listed, and is not an error. Exit code 2 if there is no such run or actor.
    """
    from ..control.commands.answering import stop_targets
    from ..control.servers import Where

    return stop_targets(Where(url=url, token=token), targets, as_json=as_json)


@click.command("logs", short_help="Print the log of a run.")
@click.argument("run", shell_complete=options.complete_run)
@click.option("-f", "--follow", is_flag=True, help="Continue until the run ends.")
@click.option("--after", metavar="SEQ", type=click.IntRange(0), default=0, help="Begin after the event of this number.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "stream-json"]),
    default="text",
    show_default=True,
    help="Form of the output on stdout: the log as text, or one event per line.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print more: model calls, tools, nested graphs, times.")
@options.server
def logs(**given: Any) -> int:
    """Print the log of RUN (its id, or the beginning of it) on stdout. It is read from the state directory, without a
    server, or from the server at --url.

    Exit code 2 if there is no such run; with -f, 3 if this machine has no log of it and no server runs.
    """
    from ..control.commands.following import show_log

    return show_log(**given)
