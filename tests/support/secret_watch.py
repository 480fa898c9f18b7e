"""No secret is in any log of the suite: what the tests have had written down is looked through for theirs.

The tests use keys, tokens and passwords that can be recognised, by their text or their form. After each test are looked
at: its captured stderr and log records (with those of processes that share its stderr), what a `callboard serve` of its
own has said, and the audit logs, server logs, records of runs, vaults and histories that lie in its `tmp_path`. One
that holds a secret makes the test fail, and so the suite, in whatever process the test ran. So does a content of a
file, kept from before a run changed it, that others than its owner may read.

Not looked at is where secrets belong: configuration, `servers/<port>.json`, sessions, and the line with the page's
address that `--ui` asks for. Nor what a test takes for itself, with `capsys` or from the pipe of any other program.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

TEXTS = ("sk-test", "open-sesame", "local-server-token", "s3cret", "local-" + "t" * 32)
"""Of the scripted model server, an SDK's client, the local server, a person, and the gate's tests."""

FORMS = re.compile(
    "|".join(map(re.escape, TEXTS))
    + r"|\bcb_[A-Za-z0-9-]{1,64}_[A-Za-z0-9_-]{16,}"  # keys of callers, and a server's own token
    r"|\bey[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"  # signed tokens
    r"|AGE-SECRET-KEY-1[A-Z0-9]{16,}"  # what opens a vault
    r"|\$argon2id?\$v="  # hashes of keys
)
_PAGE = re.compile(r"^(callboard: the page: )?https?://\S+/#token=\S+$", re.MULTILINE)
_FILES = re.compile(r"\.log$|audit.*\.jsonl(\.\d+)?$|^(?:events|requests\..*)\.jsonl$|^run\.json$|^vault\.age|history")
_KEPT = re.compile(r"/changes/(?:blobs|runs)/[^/]+$")
_SKIPPED = frozenset({".venv", "node_modules", ".git", "site-packages"})
MOST_ENTRIES = 5_000
"""Of a test's directory that are looked at."""
MOST_BYTES = 32 * 1024 * 1024
"""Of a file; tests make some that are endless."""

TOLD: list[tuple[str, str]] = []
"""What servers have said to a pipe since the last look: who, and the text."""


def secrets_in(text: str) -> list[str]:
    """The secrets in a text, shortened so that the report tells no more than it must."""
    return [found[:12] + "..." for found in FORMS.findall(text)]


def told(who: str, text: str) -> None:
    """A program under test has written this to a pipe; it is looked at after the test."""
    TOLD.append((who, text))


def listen() -> None:
    """From now on, what a `callboard serve` leaves on stderr when it is waited for counts as told."""
    original = subprocess.Popen.communicate

    def communicate(self: Any, *given: Any, **more: Any) -> Any:
        out, error = original(self, *given, **more)
        if error and "serve" in (self.args if isinstance(self.args, list) else ()):
            told("callboard serve", error if isinstance(error, str) else error.decode("utf-8", "replace"))
        return out, error

    subprocess.Popen.communicate = communicate  # type: ignore[method-assign] # for the suite


def leaks(sections: Iterable[tuple[str, str]], directory: Path | None) -> list[str]:
    """What a test has had written down that it should not have: where, and the beginning of the secret."""
    texts = [(title, text) for title, text in sections if "stderr" in title or "log" in title]
    texts += TOLD
    TOLD.clear()
    found = [f"{where}: {secret}" for where, text in texts for secret in secrets_in(_PAGE.sub("", text))]
    for path in () if directory is None else _written(directory):
        if _KEPT.search(str(path)):
            found += [f"{path}: others may read it"] if path.stat().st_mode & 0o077 else []
        else:
            found += [f"{path}: {secret}" for secret in secrets_in(_read(path))]
    return found


def _written(directory: Path) -> Iterator[Path]:
    """Logs below a test's directory, and what is kept of files from before they were changed."""
    left = MOST_ENTRIES
    for here, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        left -= len(folders) + len(files)
        if left < 0:
            return
        yield from (Path(here, name) for name in files if _FILES.search(name) or _KEPT.search(f"{here}/{name}"))


def _read(path: Path) -> str:
    if not path.is_file():  # a pipe would keep us
        return ""
    try:
        with path.open("rb") as stream:
            return stream.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
