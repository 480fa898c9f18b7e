"""`.file` and `.macro`: prompts with files, and sequences of lines."""

from __future__ import annotations

import os

import trio

from .....protocol.control.chat import split_files, split_words
from .....protocol.errors import NotFound
from ....io.saved_replies import store_reply
from ....work.macros import FILES, find, lines_of
from .. import completion
from ..chat_storage import LastPrompt
from ..command_line import ChatLine, command
from ..prompting import ask
from .info import counted

_LAST_REPLY = "%%"

_NEW_MACRO = """\
# Lines of the chat, executed one after another.
variables:
  - name: topic
    rest: true
steps:
  - 'What should I know about {{topic}}?'
"""


@command(
    ".file",
    "Ask about files, directories, pages and output of commands",
    usage="<file|dir|url|loader:path|`command`|%%>... [-- text...]",
    scopes=("run:files",),
)
async def _file(line: ChatLine) -> None:
    files, text = split_files(line.rest)
    if not files:
        raise line.misused()
    # `%%` is per machine: store the reply of this chat, or another program's reply would be used.
    if _LAST_REPLY in files and line.chat.reply is not None:
        await trio.to_thread.run_sync(store_reply, line.chat.reply, os.environ)
    await ask(line, LastPrompt(text, files))


@command(
    ".macro",
    "Run a macro, or create one",
    usage="<name> [text...]",
    in_macros=False,
    completes=lambda chat, caller, words: completion.macros(chat, caller) if len(words) == 1 else [],
)
async def _macro(line: ChatLine) -> None:
    words = split_words(line.rest)
    if not words:
        raise line.misused()
    base = line.root.config_dir
    try:
        macro = await trio.to_thread.run_sync(find, words[0], base)
    except NotFound:
        if not line.caller.has("run:files"):
            raise
        await _new(line, words[0])
        return
    arguments = words[1:]
    lines = lines_of(macro, arguments)
    if left := macro.unused_arguments(arguments):
        await line.warn(
            f"{counted(len(left), 'argument')} without a variable of the macro ignored. Usage: {macro.usage}"
        )
    chat = line.chat.macro_chat() if macro.isolated else line.chat
    for each in lines:
        await line.say(f">> {each}", "echo")
        done = await line.step(chat, each)
        line.run, line.status = done.run or line.run, done.status or line.status
        # Clients interrupt `line.chat`, also while the steps run in an isolated chat.
        if done.leave or line.chat.interrupted:
            return


async def _new(line: ChatLine, name: str) -> None:
    """Open the user's editor to create a missing macro."""
    base = line.root.config_dir
    FILES.place_for(name, base)  # raises if the name is invalid, before the editor opens
    await line.note(
        f"There is no macro '{name}'. Your editor opens to create one; if you leave the text unchanged, none "
        "is created."
    )
    new = await line.edit_until(f"{name}.yaml", _NEW_MACRO, lambda text: FILES.save(name, text, base, replace=False))
    if new is None:
        await line.note(f"nothing was written, so the macro '{name}' was not created")
    else:
        await line.note(f"Created the macro '{name}'; run it with .macro {name}")
