"""What a person has allowed for good: answers `always`, kept by directory, and bound to what was allowed.

    ~/.local/state/callboard/allowed/<sum of the directory's path>.json

Of a tool that runs something only the very same command, code or program is allowed; of any other the tool. What it was
then is kept as a sum: of a tool file its bytes, of an MCP server how it is started and what it says of the tool. When
that is another one a person is asked again. Only the user's own runs go by these answers and add to them.
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
from ...io.directories import private_directory, state_dir
from ...io.whole_file import write_whole
from .tool import Arguments, Tool

MOST = 1_000
"""Answers that are kept for one directory; the oldest go."""


class Answered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer.

    Attributes:
        tool: its name.
        sum: of what it was.
        subject: the command, the code; "" for the tool with any arguments.
        beyond: it is no call that was allowed, but that its processes do what `subject` says beyond their sandbox.
    """

    tool: str
    sum: str
    subject: str = ""
    beyond: bool = False


class _File(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    allowed: tuple[Answered, ...] = ()


_decode = json_decoder(_File).decode


class KeptAnswers:
    """The answers of one directory. Reads small files, where a person would have to be asked otherwise.

    Each run has one, and most ask nobody: the paths are looked up when they are needed.
    """

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self._named = directory
        self._environ = environ

    @cached_property
    def directory(self) -> str:
        """The directory, without symbolic links."""
        return os.path.realpath(self._named)

    @cached_property
    def _file(self) -> Path:
        name = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:32]
        return state_dir(self._environ) / "allowed" / f"{name}.json"

    def all(self) -> tuple[Answered, ...]:
        """All that are kept; none if they can't be read."""
        try:
            found = _decode(self._file.read_bytes())
        except (OSError, msgspec.DecodeError):
            return ()
        return found.allowed if found.directory == self.directory else ()

    def allows(self, tool: Tool, arguments: Arguments) -> bool:
        """Whether a call was allowed for good."""
        named = [each for each in self.all() if each.tool == tool.name]
        return bool(named) and _answer(tool, arguments) in named

    def keep(self, tool: Tool, arguments: Arguments) -> None:
        """A person has allowed this call for good.

        Raises:
            ConfigError: it can't be written down.
        """
        own = _answer(tool, arguments)
        others = (each for each in self.all() if (each.tool, each.subject) != (own.tool, own.subject))
        self._write((*others, own)[-MOST:])

    def beyond(self, tool: str, sum: str) -> list[str]:
        """What processes of a tool were allowed for good beyond their sandbox; `sum` is that of its program now."""
        return [each.subject for each in self.all() if (each.tool, each.sum, each.beyond) == (tool, sum, True)]

    def add(self, tool: str, sum: str, what: str) -> None:
        """Allow that.

        Raises:
            ConfigError: it can't be written down.
        """
        own = Answered(tool=tool, sum=sum, subject=what, beyond=True)
        self._write((*(each for each in self.all() if each != own), own)[-MOST:])

    def forget(self, tool: str | None = None) -> int:
        """Take back what was allowed, of one tool or of all; how many answers those were."""
        before = self.all()
        after = tuple(each for each in before if tool is not None and each.tool != tool)
        if after != before:
            self._write(after)
        return len(before) - len(after)

    def _write(self, allowed: tuple[Answered, ...]) -> None:
        try:
            private_directory(self._file.parent)
            data = msgspec.json.encode(_File(directory=self.directory, allowed=allowed))
            write_whole(self._file, data, private=True)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"what is allowed for good can't be written to {self._file}: {why}") from error


def _answer(tool: Tool, arguments: Arguments) -> Answered:
    runs = tool.shell or (tool.effect == "execute" and tool.origin == "builtin")
    subject = str(arguments.get(tool.subject) or "") if runs else ""
    return Answered(tool=tool.name, sum=_sum(tool), subject=subject)


def _sum(tool: Tool) -> str:
    """What a tool is: another one has another sum."""
    parts = [tool.origin.encode(), tool.definition.encode(), msgspec.json.encode(tool.spec.parameters, order="sorted")]
    if tool.file is not None:
        try:
            parts.append(tool.file.read_bytes())
        except OSError as error:
            parts.append(repr(error).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
