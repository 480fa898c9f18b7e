"""`callboard run`, `ask` and `batch`: one run of an agent, of a model without an agent, and many runs."""

from __future__ import annotations

from typing import Any

import click

from .. import options


def _joined(_ctx: click.Context, _param: click.Parameter, words: tuple[str, ...]) -> str | None:
    return " ".join(words) or None


def _one(_ctx: click.Context, _param: click.Parameter, words: tuple[str, ...]) -> str | None:
    """Return the prompt of a run, which is one argument: several words may be a list of files (`run coder *.py`)."""
    if len(words) > 1:
        import shlex

        quoted = shlex.quote(" ".join(words[:20]) + (" ..." if len(words) > 20 else ""))
        raise click.UsageError(f"expected one argument as the prompt, found {len(words)}; quote it: {quoted}")
    return _joined(_ctx, _param, words)


_on_server = options.several(
    click.option(
        "--on",
        metavar="SERVER",
        help="Execute the run on a server: its URL, or `cluster` for $CALLBOARD_URL, else the newest server of "
        "this machine.",
    ),
    click.option(
        "--needs",
        metavar="LABEL",
        multiple=True,
        help="With --on: label that the worker of the cluster must have; repeatable.",
    ),
)


@click.command("run", short_help="Run an agent and print its result.")
@click.argument("target", shell_complete=options.complete_target)
@click.argument("prompt", nargs=-1, metavar="[PROMPT]", callback=_one)
@options.model
@options.variables
@click.option("--set", "state", metavar="KEY=JSON", multiple=True, help="Override a key of initial_state; repeatable.")
@options.prepared_answers
@click.option("--ui", is_flag=True, help="Also show the run on a page; its address goes to stderr.")
@options.session
@options.knowledge
@options.permissions
@options.no_input
@options.attach
@click.option(
    "--save", metavar="DIR", help="Save the run as files in DIR/<run id>/: events, outputs, usage, workspace."
)
@options.dry_run
@options.no_stream
@options.keep_requests
@options.durable
@options.on_unknown
@options.sandbox
@options.cassettes
@_on_server
@options.result_form
@options.compat
@options.limits
@options.strict
@options.loudness
@options.config_dir
def run(*, on: str | None, needs: tuple[str, ...], **given: Any) -> int:
    """Run TARGET and print its result on stdout; progress goes to stderr.

    TARGET is the name of an agent in the config directory or of a built-in one, the directory of an agent, or a YAML
    file: an agent, a graph, or a DevAll workflow. PROMPT is the text that it starts from. `-` reads it from standard
    input; text from a pipe is appended to it.

    \b
    Exit codes: 0 done, 1 the run failed, 2 wrong usage or invalid file, 3 configuration or credentials,
    4 a limit was reached, 5 no user was present to answer a question, 6 an upstream service failed (a retry may work),
    129/130/143 ended by SIGHUP/Ctrl-C/SIGTERM, 141 the reader of stdout closed it.
    """
    options.check_loudness(given)
    from ..flag_values import request

    if on is not None:
        from ..actions.run import run_on_cluster

        return run_on_cluster(request(given), on, needs, given)
    if needs:
        raise click.UsageError("--needs needs --on: it selects the worker of a cluster that executes the run")
    from ..actions.run import RunFlags, execute_run

    # `request` removes its flags from `given`, so it has to be evaluated first: the rest are the fields of RunFlags.
    return execute_run(request(given), RunFlags(**given))


@click.command("ask", short_help="Ask a model, optionally with tools; needs no agent.")
@click.argument("prompt", nargs=-1, callback=_joined)
@options.model
@click.option(
    "--tool",
    "tools",
    metavar="NAME",
    multiple=True,
    help="Let the model call this tool (callboard tools lists them), an alias of several, or all; mcp:NAME "
    "for the tools of an MCP server; repeatable [default: enabled_tools and enabled_mcp_servers of "
    "config.yaml].",
)
@click.option("--system", metavar="TEXT", default="", help="The system prompt.")
@options.role
@options.prepared_answers
@options.session
@options.knowledge
@options.attach
@options.permissions
@options.sandbox
@options.no_input
@options.dry_run
@options.no_stream
@options.keep_requests
@options.durable
@options.cassettes
@options.result_form
@options.limits
@options.loudness
@options.config_dir
def ask(tools: tuple[str, ...], system: str, role: str | None, role_prompt: str | None, **given: Any) -> int:
    """Send PROMPT to a model and print its answer on stdout; progress goes to stderr.

    PROMPT can have several words. `-` reads standard input, and text from a pipe is appended to PROMPT. With -f, PROMPT
    is optional. The model can call the tools that --tool or config.yaml names. Tools that write or execute ask at the
    terminal first, unless --yes, --allow or the permissions of config.yaml allow them. Exit codes as for `callboard
    run`.

    \b
    callboard ask "What time is it?" --tool get_current_time
    git diff | callboard ask "Write a commit message for this change"
    callboard ask -f notes.md -f '`git log -5`' "What is missing from the notes?"
    callboard ask -f photo.png "What is this?"
    callboard ask -r explain-shell "tar xzf a.tgz -C /tmp"
    """
    options.check_loudness(given)
    options.check_role(system=system, role=role, prompt=role_prompt)
    from ..actions.run import AdHoc, RunFlags, execute_run
    from ..flag_values import request

    adhoc = AdHoc(instructions=system, tools=tools, role=role, prompt=role_prompt)
    # saves: as in Loki, `save: true` stores a single prompt of the command line. Here too `request` comes first.
    return execute_run(request(given), RunFlags(adhoc=adhoc, saves=True, **given))


@click.command("batch", short_help="Run an agent on every task of a file.")
@click.argument("target", shell_complete=options.complete_target)
@click.argument("tasks", type=click.Path())
@click.option(
    "--max-parallel",
    metavar="N",
    default="5",
    show_default=True,
    callback=options.above_zero("tasks", int),
    help="Maximum number of concurrent tasks.",
)
@click.option(
    "--results",
    metavar="FILE",
    help="File for the results, one line of JSON each [default: TASKS with the suffix .results.jsonl].",
)
@click.option(
    "--max-failures",
    metavar="N",
    callback=options.above_zero("tasks", int),
    help="Start no more tasks after N failures.",
)
@options.model
@options.variables
@options.prepared_answers
@options.permissions
@options.sandbox
@click.option("--save", metavar="DIR", help="Save every run as files in DIR/<run id>/, as `callboard run` does.")
@options.durable
@options.text_or_json
@options.compat
@options.limits
@options.strict
@click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr, no progress.")
@options.config_dir
def batch(**given: Any) -> int:
    """Run TARGET (an agent or a workflow) once for each row of TASKS: a .csv, .jsonl or .xlsx file.

    The columns of TASKS are id, task, attachments (a JSON list of files) and vars (a JSON object, as --var). To
    continue a batch that was interrupted, repeat the command: tasks that are done are skipped, and failed ones run
    again. Limits and answers apply to each run. No question is asked at the terminal.

    \b
    Exit codes: 0 all tasks are done, 1 some have failed, else those of `callboard run`: 3 means that a key or a
    setting is missing, so that every task would fail.
    """
    from ..actions.batch import run_tasks
    from ..flag_values import request

    # `request` comes first, as in `run`.
    return run_tasks(request(given), **given)
