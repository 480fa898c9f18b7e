"""`.trust`: decides whether the AGENTS.md, skills, hooks and MCP servers of the directory are loaded.

A terminal sends the command when it opens a chat in a directory without a decision (`Opened.trust`). So the question
appears once and within the chat. Prompts sent meanwhile wait for the answer.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from .....protocol.control.caller import LOCAL
from .....protocol.errors import UsageError
from ....io.secret_redaction import hidden
from ....work.trust.decisions import record_of
from ....work.trust.summary import refuse, rows_of, trust, undecided
from ....work.trust.trusted_files import offers, workspace_of
from ....work.trust.workspace_files import root_of
from ....work.workspace import unused
from .. import names
from ..line import ChatLine
from ..table import command
from .looking import table

if TYPE_CHECKING:
    from .....protocol.control.caller import Caller
    from ..chat import Chat

_YES, _NO, _LATER = "Yes, load them", "No, and do not ask again", "Not now"


def asks_for_trust(caller: Caller) -> bool:
    """Return True if the local user must decide about the directory; reads none of its files."""
    if caller.subject != LOCAL.subject:
        return False
    workspace = workspace_of(Path.cwd(), os.environ)
    decided = workspace is None or workspace.is_trusted or workspace.is_refused
    return workspace is not None and not decided and offers(workspace, Path.cwd()) != ""


def _words(_chat: Chat, _caller: Caller, words: Sequence[str]) -> names.Names:
    if len(words) > 1:
        return []
    return [("yes", "load them"), ("no", "load nothing, and do not ask again")]


@command(
    ".trust",
    "Load this directory's AGENTS.md, skills, hooks and servers",
    usage="[yes|no]",
    scopes=("run:files", "admin:mcp"),
    in_macros=False,
    completes=_words,
)
async def _trust(line: ChatLine) -> None:
    if line.rest not in ("", "yes", "no"):
        raise line.misused()
    root = root_of(Path.cwd(), os.environ)
    if root is None:
        raise UsageError(
            "Nothing is loaded from the home directory or a directory above it: neither counts as a repository."
        )
    # The user sees the state here, so runs need not warn of ignored files again.
    line.chat.warned.update(str(each) for each in (unused(root, Path.cwd(), os.environ),) if each is not None)
    record = record_of(root, os.environ)
    files = await trio.to_thread.run_sync(undecided, root, os.environ)
    if not files and line.rest != "no":
        state = (
            "all files for agents are loaded"
            if record is not None and record.trusted
            else "there are no files for agents"
        )
        await line.note(f"{root}: {state}")
        return
    picked = {"yes": _YES, "no": _NO}.get(line.rest)
    if picked is None:
        known = record is not None and record.trusted
        changed = "The files for agents have changed since you trusted them" if known else "There are files for agents"
        rows = await trio.to_thread.run_sync(rows_of, root, files)
        until = "Until you say yes, no model reads them and nothing in them runs."
        asked = f"{changed} in {root}. Load them?\n{table(rows)}\n{until}"
        picked = await line.choose(hidden(asked), [_YES, _NO, _LATER], default=_LATER)
    if picked == _YES:
        await trio.to_thread.run_sync(trust, root, os.environ)
        await line.note("Takes effect with the next prompt. You are asked again when a file changes.")
    elif picked == _NO:
        await trio.to_thread.run_sync(refuse, root, os.environ)
        await line.note("None of these files is loaded. `.trust yes` changes that.")
    else:
        await line.note("The files are not loaded in this chat. `.trust` asks again.")
