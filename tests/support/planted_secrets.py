"""Secrets that are planted, and where they turn up: every byte below a directory, of a terminal, of answers.

    planted = Planted(TOKEN="...")
    planted.found(terminal.raw)          # the names of those that are in there, with how they were written
    planted.below(directory, allowed)    # the same of all files; those that `allowed` names may hold some

A secret is looked for as it is, as JSON and YAML escape it, as URLs quote it, in base64 (both alphabets, wherever it
begins in what was encoded) and in hex. For a text that was told in pieces, hand over the pieces put together as well.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Self
from urllib.parse import quote, quote_plus


class Planted:
    """See the module. Attributes: `secrets`, by name."""

    def __init__(self, **secrets: str) -> None:
        self.secrets = secrets
        self._forms: dict[bytes, str] = {}
        for name, secret in secrets.items():
            for how, form in _forms(secret):
                self._forms.setdefault(form, f"{name} {how}")

    def found(self, data: bytes | str) -> list[str]:
        """Which are in there, each with how it is written."""
        data = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        return sorted({what for form, what in self._forms.items() if form in data})

    def below(self, *directories: Path, allowed: Mapping[str, Iterable[str]] | None = None) -> list[str]:
        """Which are in files, and in names of files. `allowed`: by a pattern for paths, whose secrets may be there."""
        told = []
        for directory in directories:
            for path in sorted(directory.rglob("*")):
                where = str(path.relative_to(directory))
                may = {name for pattern, names in (allowed or {}).items() if fnmatch(where, pattern) for name in names}
                data = path.read_bytes() if path.is_file() else b""
                found = {*self.found(data), *self.found(where)}
                told += [f"{where}: {what}" for what in sorted(found) if what.split()[0] not in may]
        return told


class CommandLines:
    """What `ps` shows of all processes while the block lasts, as one who looks all the time sees it."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._over = Event()
        self._looking = Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._over.wait(0.02):
            for process in Path("/proc").iterdir():
                if process.name.isdigit():
                    try:
                        self.seen.add((process / "cmdline").read_bytes())
                    except OSError:  # it has ended
                        continue

    def __enter__(self) -> Self:
        self._looking.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._looking.join()


def _forms(secret: str) -> Iterable[tuple[str, bytes]]:
    yield "as it is", secret.encode()
    for only in (True, False):
        yield "in JSON", json.dumps(secret, ensure_ascii=only)[1:-1].encode()
        yield "in JSON in JSON", json.dumps(json.dumps(secret, ensure_ascii=only))[3:-3].encode()
    yield "in a repr", repr(secret)[1:-1].encode()
    yield "in a repr in a repr", repr(repr(secret))[2:-2].encode()
    yield "in a URL", quote(secret, safe="").encode()
    yield "in a URL", quote(secret).encode()
    yield "in a form", quote_plus(secret).encode()
    yield "in hex", secret.encode().hex().encode()
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + secret.encode()).rstrip(b"=")
        core = whole[(before * 8 + 5) // 6 : -1]  # what does not depend on what stands before and behind it
        yield "in base64", core
        yield "in base64 for URLs", core.replace(b"+", b"-").replace(b"/", b"_")
