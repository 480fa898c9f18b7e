"""`callboard ps`, `top`, `attach`, `answer`, `stop` and `logs`: clients of a server. Their work is in `..control`."""

from __future__ import annotations

import sys
from typing import Any

import click

from .. import options


@click.command("ps", short_help="List the runs that are under way.")
@click.option("-a", "--all", "past", is_flag=True, help="Past runs, too; the newest first.")
@click.option("--limit", metavar="N", type=click.IntRange(1), default=50, show_default=True, help="With -a: how many.")
@options.text_or_json
@options.server
def ps(past: bool, limit: int, as_json: bool, url: str | None, token: str | None) -> str:
    """Lists the runs under way of the newest `callboard serve` of this user, or of the server at --url: since when, how
    many questions are open, what each has used, and what it does right now. Runs of `callboard run` and `ask` at other
    terminals are listed, too, with their process; they are watched and stopped there.

    Exit code 3 if there is neither a server nor such a run, 6 if the server does not answer.
    """
    from ..control.commands.listing import list_runs
    from ..control.servers import Where

    return list_runs(Where(url=url, token=token), past=past, limit=limit, as_json=as_json)


@click.command("top", short_help="Watch the actors of a server, and steer them.")
@click.argument("run", required=False, shell_complete=options.complete_run)
@options.text_or_json
@options.server
def top(run: str | None, as_json: bool, url: str | None, token: str | None) -> int | str:
    """Shows all actors of a server, or those of RUN: where each is in the tree, its state and kind, the mail that waits
    for it, what it does and for how long, what it has used, its restarts, its events and the last of them.

    \b
    Keys: arrows or j k move, enter looks closer, c cancels (asks first), p pauses and resumes,
    a answers a question, / filters, s and S sort by another column, q quits.

    Where stdout is no terminal, and with -o json, it prints what is there now and ends.
    """
    from ..control.servers import Where
    from ..control.top import app
    from ..render.text import redrawable

    where = Where(url=url, token=token)
    if not as_json and sys.stdin.isatty() and redrawable(sys.stdout):
        return app.watch(where, run)
    return app.snapshot(where, run, as_json=as_json)


@click.command("attach", short_help="Watch a run of a server, and answer its questions.")
@click.argument("run", shell_complete=options.complete_run)
@options.no_input
@options.result_form
@options.loudness
@options.server
def attach(**given: Any) -> int:
    """Shows RUN (its id, or the beginning of it) from its beginning to its end, as `callboard run` would have: progress
    on stderr, questions at the terminal, the result on stdout, and the exit code of the run.

    The run goes on without this command: Ctrl-C only ends the looking at it, with exit code 130. Any number of
    terminals may be attached; the first answer to a question counts, and the others show it.

    Exit code 3 if no server runs, 6 if it goes away in the middle.
    """
    options.check_loudness(given)
    from .. import logging
    from ..control.commands.attaching import attach as follow_run

    logging.configure()
    return follow_run(**given)


@click.command("answer", short_help="List open questions of a server's runs, or answer one.")
@click.argument("question", required=False, shell_complete=options.complete_run)
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@options.text_or_json
@options.server
def answer(question: str | None, texts: tuple[str, ...], as_json: bool, url: str | None, token: str | None) -> str:
    """Answers QUESTION (its id, or that of a run that asks just one) with TEXT; without TEXT it is asked at the
    terminal, without QUESTION all open ones are listed. `-` as TEXT reads the answer from standard input. A question
    with boxes to tick takes several TEXTs.

    Exit code 2 if no such question is open, if another client was faster, or if TEXT is no answer to it.
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
    """Cancels each RUN (its id, or the beginning of it) and waits for its end; or the actor of this path (`callboard
    top` shows them) with all below it, and the run decides what becomes of that.

    What had ended before is listed, and is no failure. Exit code 2 if there is no such run or actor.
    """
    from ..control.commands.answering import stop_targets
    from ..control.servers import Where

    return stop_targets(Where(url=url, token=token), targets, as_json=as_json)


@click.command("logs", short_help="Print what has happened in a run.")
@click.argument("run", shell_complete=options.complete_run)
@click.option("-f", "--follow", is_flag=True, help="Goes on with what happens, until the run ends.")
@click.option(
    "--after", metavar="SEQ", type=click.IntRange(0), default=0, help="Begins after the event of this number."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "stream-json"]),
    default="text",
    show_default=True,
    help="Form of what is printed on stdout: the story, or one event a line.",
)
@click.option("-v", "--verbose", is_flag=True, help="More of the story: model calls, tools, nested graphs, times.")
@options.server
def logs(**given: Any) -> int:
    """Tells the story of RUN (its id, or the beginning of it) on stdout: from the state directory, for which no server
    is needed, or from the server at --url.

    Exit code 2 if there is no such run; with -f 3 if there is no log of it here, and no server runs.
    """
    from ..control.commands.following import show_log

    return show_log(**given)
