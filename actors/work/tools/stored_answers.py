"""Permanent permissions: answers `always`, stored per directory and bound to the tool's identity.

    ~/.local/state/callboard/allowed/<hash of the directory's path>.json

For a tool that runs something, an answer covers only the identical command, code or program; for any other tool, all
calls. With a pattern (`always: git log *`), an answer covers every call that the same pattern under `permissions` would
allow. Each simple command of a line therefore has to match.

The tool's identity is stored as a hash. It covers the bytes of a tool file, or the start command of an MCP server and
the tool's definition. After a change of the identity, the user is asked again. Only the user's own runs use these
answers and add to them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import msgspec

from ....protocol.decoding import json_decoder
from ....protocol.errors import ConfigError
from ....protocol.permissions import PermissionRule
from ...io.atomic_write import write_whole
from ...io.directories import private_directory, state_dir
from .rules import JudgedCall, PathContext, by_subject
from .tool import Arguments, Tool

MOST = 1_000
"""Maximum number of stored answers per directory; the oldest are dropped."""


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A permanent permission.

    Attributes:
        tool: its name.
        sum: hash of the tool's identity.
        subject: the command or code; "" for the tool with any arguments.
        pattern: True if `subject` is a pattern, in which `*` matches any text.
        beyond: True if the answer allows no call, but an access outside of the sandbox (`subject`) by the tool's
            processes.
    """

    tool: str
    sum: str
    subject: str = ""
    pattern: bool = False
    beyond: bool = False


class _File(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    allowed: tuple[StoredAnswer, ...] = ()


_decode = json_decoder(_File).decode


class StoredAnswers:
    """Stored answers of one directory.

    Blocks for reads of small files, only where the user would have to be asked otherwise.

    Each run has one, and most runs ask no question, so the paths are computed on first use.
    """

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self._named = directory
        self._environ = environ

    @cached_property
    def directory(self) -> str:
        """The directory, with symbolic links resolved."""
        return os.path.realpath(self._named)

    @cached_property
    def _file(self) -> Path:
        name = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:32]
        return state_dir(self._environ) / "allowed" / f"{name}.json"

    def all(self) -> tuple[StoredAnswer, ...]:
        """Return all stored answers; empty if they cannot be read."""
        try:
            found = _decode(self._file.read_bytes())
        except (OSError, msgspec.DecodeError):
            return ()
        # The file name is a shortened hash, so the directory itself must match too.
        return found.allowed if found.directory == self.directory else ()

    def allows(self, tool: Tool, arguments: Arguments) -> bool:
        """Return True if a stored answer covers the call."""
        named = [each for each in self.all() if each.tool == tool.name and not each.beyond]
        if not named:
            return False
        answer = _answer(tool, arguments)
        patterns = [each.subject for each in named if each.pattern and each.sum == answer.sum]
        return answer in named or any(self.covers(tool, arguments, each) for each in patterns)

    def covers(self, tool: Tool, arguments: Arguments, pattern: str) -> bool:
        """Return True if a pattern allows this call."""
        rule = PermissionRule(allow=(pattern,))
        return by_subject(rule, JudgedCall(tool, arguments, PathContext.of(self._named))) == "allow"

    def keep(self, tool: Tool, arguments: Arguments, pattern: str | None = None) -> None:
        """Store that the user permanently allows this call, or with `pattern` all calls that match it.

        Raises:
            ConfigError: the file cannot be written.
        """
        own = _answer(tool, arguments)
        if pattern is not None and pattern != default_pattern(tool, arguments):
            own = msgspec.structs.replace(own, subject=pattern, pattern=True)
        others = (each for each in self.all() if _key(each) != _key(own))
        self._write((*others, own)[-MOST:])

    def beyond(self, tool: str, sum: str) -> list[str]:
        """Return the permanently allowed accesses outside of the sandbox; `sum` is the hash of the current program."""
        return [each.subject for each in self.all() if (each.tool, each.sum, each.beyond) == (tool, sum, True)]

    def add(self, tool: str, sum: str, what: str) -> None:
        """Permanently allow processes of a tool, in this directory, the access `what` outside of the sandbox.

        The permission lapses when the tool's program changes: it holds for the program with the hash `sum`.

        Raises:
            ConfigError: the file cannot be written.
        """
        own = StoredAnswer(tool=tool, sum=sum, subject=what, beyond=True)
        self._write((*(each for each in self.all() if each != own), own)[-MOST:])

    def forget(self, tool: str | None = None) -> int:
        """Delete the answers of one tool or of all, and return their number."""
        before = self.all()
        after = tuple(each for each in before if tool is not None and each.tool != tool)
        if after != before:
            self._write(after)
        return len(before) - len(after)

    def _write(self, allowed: tuple[StoredAnswer, ...]) -> None:
        try:
            private_directory(self._file.parent)
            data = msgspec.json.encode(_File(directory=self.directory, allowed=allowed))
            write_whole(self._file, data, private=True)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"permanent approvals can't be written to {self._file}: {why}") from error


_LONGEST_PATTERN = 500
"""Maximum characters of a command that a person can edit in one line."""


def default_pattern(tool: Tool, arguments: Arguments) -> str:
    """Return the pattern that the answer `always` stores for this call, as the question shows it."""
    if not _runs(tool):
        return "*"
    subject = _answer(tool, arguments).subject
    return subject if subject.isprintable() and len(subject) <= _LONGEST_PATTERN else ""


def _key(answered: StoredAnswer) -> tuple[str, str, bool, bool]:
    return answered.tool, answered.subject, answered.pattern, answered.beyond


def _runs(tool: Tool) -> bool:
    return tool.shell or (tool.effect == "execute" and tool.origin == "builtin")


def _answer(tool: Tool, arguments: Arguments) -> StoredAnswer:
    subject = str(arguments.get(tool.subject) or "") if _runs(tool) else ""
    return StoredAnswer(tool=tool.name, sum=_sum(tool), subject=subject)


def _sum(tool: Tool) -> str:
    """Return the hash of a tool's identity."""
    parts = [tool.origin.encode(), tool.definition.encode(), msgspec.json.encode(tool.spec.parameters, order="sorted")]
    if tool.file is not None:
        try:
            parts.append(tool.file.read_bytes())
        except OSError as error:
            # An unreadable file has another identity than any readable content.
            parts.append(repr(error).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
