"""`callboard chat`, and `callboard` without a command."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from .. import options


@click.command("chat", short_help="Chat at the terminal, with an agent or a model.")
@click.argument("agent", required=False, shell_complete=options.complete_agent)
@click.option(
    "-m",
    "--model",
    metavar="CLIENT:MODEL",
    shell_complete=options.complete_model,
    help="Answer with this model. It has no effect on nodes that name their own model, as agent nodes of DevAll "
    "workflows do. Of several, separated by commas, the first that answers.",
)
@click.option(
    "-s",
    "--session",
    metavar="NAME",
    shell_complete=options.complete_session,
    help="Continue this session, or begin it.",
)
@click.option("-r", "--role", metavar="NAME", shell_complete=options.complete_role, help="Begin in this role.")
@click.option(
    "--rag", metavar="NAME", shell_complete=options.complete_base_name, help="Look prompts up in this knowledge base."
)
@click.option("-c", "--continue", "continues", is_flag=True, help="Continue the newest stored chat of this directory.")
@click.option("--resume", is_flag=True, help="List the stored chats, and continue the one that you choose.")
@click.option("--no-tools", is_flag=True, help="Chat with a model alone, without the default agent.")
@click.option(
    "--attach",
    metavar="[CHAT]",
    # click: the value may be omitted, and is "" then.
    is_flag=False,
    flag_value="",
    help="Attach to an open chat of a server: its id, or the beginning of it. Without CHAT: the only open "
    "one, or a list.",
)
@click.option("--ui", is_flag=True, help="Also show the chat on a page, and let other terminals attach.")
@options.no_stream
@options.durable
@options.config_dir
@options.server
@click.pass_context
def command(
    context: click.Context,
    agent: str | None,
    model: str | None,
    session: str | None,
    role: str | None,
    rag: str | None,
    continues: bool,
    resume: bool,
    no_tools: bool,
    attach: str | None,
    ui: bool,
    no_stream: bool,
    durable: bool | None,
    config_dir: str | None,
    url: str | None,
    token: str | None,
) -> int:
    """Chat at the terminal: type a prompt, or `.help` for the commands.

    Without AGENT, the agent that `chat_agent` of config.yaml names answers; by default the built-in `assistant`, which
    works on the files of this directory.

    An agent reads what you send while it works. Esc or Ctrl-C interrupts it. Ctrl-D or `.exit` ends the chat.

    With --url, the chat runs on that server, with its agents, files and shell. With --attach, it joins an open chat of
    another terminal or of the page; leaving only detaches this terminal.

    Exit code 2 if there is no terminal, or no such chat. With --url or --attach: 3 if there is no server or it refuses
    the token, 6 if the connection is lost.
    """
    from ..chat.program import open_chat

    given: dict[str, Any] = {"agent": agent, "model": model, "session": session, "role": role, "rag": rag}
    opening = {name: value for name, value in given.items() if value is not None}
    if (continues or resume) and (agent or session or role or no_tools or attach is not None):
        flag = "--continue" if continues else "--resume"
        raise click.UsageError(
            f"{flag} restores the agent, session and role of the chat: give none of these, nor --no-tools, --attach."
        )
    if continues and resume:
        raise click.UsageError(
            "--continue continues the newest chat, --resume the one that you choose: give one of the two."
        )
    if no_tools and agent is not None:
        raise click.UsageError("--no-tools is for a chat without an agent: the file of an agent names its tools.")
    if attach is not None and (opening or no_tools):
        raise click.UsageError("--attach joins an open chat: give no agent, model, session, role or knowledge base.")
    opening |= {"default_agent": attach is None and not no_tools, "store": attach is None}
    if continues or resume:
        opening["reopen"] = "last" if continues else "choose"
    where = None
    # $CALLBOARD_URL, which is set for `ps` and `attach`, does not move a chat to a server; with --attach it counts.
    if attach is not None or context.get_parameter_source("url") is ParameterSource.COMMANDLINE:
        from ..control.servers import Where

        where = Where(url=url, token=token)
    if ui and where is not None:
        raise click.UsageError("--ui is for a chat of this process; the server of --url or --attach has its own page.")
    if durable is not None and where is not None:
        raise click.UsageError("--durable and --ephemeral are for a chat of this process, not of a server.")
    return open_chat(
        opening, config_dir=config_dir, streams=not no_stream, where=where, attach=attach, ui=ui, durable=durable
    )
