"""`callboard answer`: the questions that the runs of a server ask."""

from __future__ import annotations

import click

from . import options


@click.command("answer", short_help="List open questions of a server's runs, or answer one.")
@click.argument("question", required=False, shell_complete=options.complete_run)
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@options.text_or_json
@options.server
def command(question: str | None, texts: tuple[str, ...], as_json: bool, url: str | None, token: str | None) -> str:
    """Answers QUESTION (its id, or that of a run that asks just one) with TEXT; without TEXT it is asked at the
    terminal, without QUESTION all open ones are listed. `-` as TEXT reads the answer from standard input. A question
    with boxes to tick takes several TEXTs.

    Exit code 2 if no such question is open, if somebody else was faster, or if TEXT is no answer to it.
    """
    from .control.commands import answering
    from .control.servers import Where

    where = Where(url=url, token=token)
    if question is None:
        return answering.list_questions(where, as_json=as_json)
    return answering.answer_question(where, question, answering.read_text(texts), as_json=as_json)
