"""Price table files: the one in the package, and the one of the last update."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from .....protocol.decoding import decode_json
from .....protocol.errors import ConfigError
from ....io.atomic_write import write_whole
from ....io.directories import data_dir, private_directory
from .table import PriceTable


class PriceTables:
    """Loaded price table. The constructor reads the files and blocks.

    Attributes:
        table: the newer of the two tables.
        problem: error of an unusable updated table; "" if it is usable or does not exist.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.problem = ""
        self.table = vendored()
        file = updated_file(environ)
        try:
            with file.open("rb") as stream:
                from .source import LARGEST, read  # imported late: most installations have no updated table

                data = stream.read(LARGEST + 1)
            table = read(data, where=str(file), today=self.table.made)
        except FileNotFoundError:
            return
        except (OSError, ConfigError) as error:
            reason = f"{file} can't be read: {error.strerror}" if isinstance(error, OSError) else str(error)
            self.problem = f"{reason}; run `callboard models update`, or delete it"
            return
        # A newer Callboard may contain a newer table than the last update.
        if table.made >= self.table.made:
            self.table = table


@cache
def vendored() -> PriceTable:
    """Return the table in the package."""
    return _decoded(Path(__file__).with_name("table.json").read_bytes())


def _decoded(data: bytes) -> PriceTable:
    return decode_json(data, PriceTable)


def updated_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the updated table."""
    return data_dir(environ) / "prices.json"


def keep(table: PriceTable, environ: Mapping[str, str]) -> Path:
    """Write a table as the updated table, and return the path of the file. This blocks.

    Raises:
        ConfigError: the file cannot be written; the old one is unchanged.
    """
    from .source import encoded

    file = updated_file(environ)
    try:
        private_directory(file.parent)
        write_whole(file, encoded(table), durable=True)
    except OSError as error:
        raise ConfigError(f"{file} can't be written: {error.strerror}") from error
    return file
