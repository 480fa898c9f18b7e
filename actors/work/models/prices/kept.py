"""The files that hold prices: the one that comes with Callboard, and the one of the last update."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from .....protocol.decoding import decode_json
from .....protocol.errors import ConfigError
from ....io.directories import data_dir, private_directory
from ....io.whole_file import write_whole
from .source import LARGEST, encoded, read
from .table import Table


class Kept:
    """The table that counts, read when it is first asked for.

    Attributes:
        table: the newer one of the two.
        problem: why the one of the last update is not used though it is there; "" if it is, or if there is none.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.problem = ""
        self.table = vendored()
        file = updated_file(environ)
        try:
            with file.open("rb") as stream:
                data = stream.read(LARGEST + 1)
            table = read(data, where=str(file), today=self.table.made)
        except FileNotFoundError:
            return
        except (OSError, ConfigError) as error:
            reason = f"{file} can't be read: {error.strerror}" if isinstance(error, OSError) else str(error)
            self.problem = f"{reason}; run `callboard models update`, or delete it"
            return
        if table.made >= self.table.made:
            self.table = table


@cache
def vendored() -> Table:
    """The table that comes with Callboard."""
    file = files(__package__) / "table.json"
    return _decoded(file.read_bytes())


def _decoded(data: bytes) -> Table:

    return decode_json(data, Table)


def updated_file(environ: Mapping[str, str]) -> Path:
    """Where the table of the last update is."""
    return data_dir(environ) / "prices.json"


def keep(table: Table, environ: Mapping[str, str]) -> Path:
    """Make this the table of the last update; the file's path.

    Raises:
        ConfigError: it can't be written, and what was there stays.
    """
    file = updated_file(environ)
    try:
        private_directory(file.parent)
        write_whole(file, encoded(table), durable=True)
    except OSError as error:
        raise ConfigError(f"{file} can't be written: {error.strerror}") from error
    return file
