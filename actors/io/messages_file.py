"""Message file for the setting `save`: prompts and replies outside of sessions are appended to it, as in Loki.

It is `messages.md` of the configuration directory, or the file that `CALLBOARD_MESSAGES_FILE` (`LOKI_MESSAGES_FILE`)
names; only its owner can read it. Secrets of the vault are redacted.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from .handed_out import hidden

NAMES = ("CALLBOARD_MESSAGES_FILE", "LOKI_MESSAGES_FILE")


def messages_file(config_dir: Path) -> Path:
    """Return the path of the file."""
    named = next((value for name in NAMES if (value := os.environ.get(name))), None)
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
