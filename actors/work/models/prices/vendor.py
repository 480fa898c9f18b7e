"""Creation of `table.json`: `python -m callboard.actors.work.models.prices.vendor FILE SOURCE DATE`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import msgspec

from .source import encoded, read


def main(arguments: Sequence[str]) -> None:
    """Write the table of the package.

    Args:
        arguments: genai-prices' file, the name of the source, and the date of its prices.
    """
    file, source, day = arguments
    table = read(Path(file).read_bytes(), where=file, today=date.fromisoformat(day))
    table = msgspec.structs.replace(table, source=source)
    lines = encoded(table).replace(b'{"id":', b'\n{"id":')  # one line per model, for readable diffs of updates
    Path(__file__).with_name("table.json").write_bytes(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
