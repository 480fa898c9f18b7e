"""Replies saved outside of sessions: the last reply for `-f %%`, and the message file of the setting `save`.

The last reply of this machine is one file in the cache directory. The message file is `messages.md` of the
configuration directory, or the file that `CALLBOARD_MESSAGES_FILE` (`LOKI_MESSAGES_FILE`) names; prompts and replies
are appended to it, as in Loki. Only their owner can read both files, and secrets of the vault are redacted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from .atomic_write import write_whole
from .directories import cache_dir, private_directory
from .secret_redaction import hidden

MOST_OF_REPLY = 10 * 1024 * 1024
"""Maximum bytes; a longer reply is not stored."""


def last_reply_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the file, which may not exist."""
    return cache_dir(environ) / "last-reply.txt"


def store_reply(text: str, environ: Mapping[str, str]) -> None:
    """Replace the stored reply atomically. A reply of more than `MOST_OF_REPLY` bytes is not stored.

    Raises:
        OSError: it can't be written.
    """
    data = hidden(text).encode("utf-8", "replace")
    if len(data) > MOST_OF_REPLY:
        return
    file = last_reply_file(environ)
    private_directory(file.parent)
    write_whole(file, data, private=True)


def last_reply(environ: Mapping[str, str]) -> str | None:
    """Return the last reply of a model on this machine; None if there is none yet.

    Raises:
        OSError: it can't be read.
    """
    try:
        return last_reply_file(environ).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


MESSAGES_FILE_VARIABLES = ("CALLBOARD_MESSAGES_FILE", "LOKI_MESSAGES_FILE")


def messages_file(config_dir: Path) -> Path:
    """Return the path of the file to which prompts and replies are appended."""
    named = next((value for name in MESSAGES_FILE_VARIABLES if (value := os.environ.get(name))), None)
    return Path(named).expanduser() if named else config_dir / "messages.md"


def add_message(config_dir: Path, title: str, prompt: str, reply: str) -> None:
    """Append an exchange.

    Raises:
        OSError: it can't be written.
    """
    file = messages_file(config_dir)
    file.parent.mkdir(parents=True, exist_ok=True)
    when = datetime.now().astimezone().isoformat(timespec="seconds")
    prompt, reply = hidden(prompt), hidden(reply)
    text = f"# CHAT: {title} [{when}]\n\n{prompt}\n\n--------\n\n{reply}\n\n--------\n\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8", errors="replace") as stream:
        stream.write(text)
