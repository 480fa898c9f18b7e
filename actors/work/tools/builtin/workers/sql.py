"""Program that runs SQL statements on a SQLite database; the process of execute_sql_code.

It reads a task as JSON from stdin. Each statement is a transaction of its own unless the code uses BEGIN. Effects of
earlier statements remain when a later one fails, and the error says so. No statement may open another file.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from typing import Any

CELL = 1000
"""Maximum characters of one value in the result."""


def statements(code: str) -> Iterator[str]:
    """Yield the statements of the code."""
    start = 0
    end = code.find(";")
    while end >= 0:
        # A semicolon may be in a text, a comment or a trigger; SQLite decides which one ends a statement.
        if sqlite3.complete_statement(code[start : end + 1]):
            yield code[start : end + 1]
            start = end + 1
        end = code.find(";", end + 1)
    if code[start:].strip():
        yield code[start:]


def only_this_file(action: int, first: str | None, *_: object) -> int:
    """Authorizer callback: refuse statements that open another file (ATTACH, VACUUM INTO)."""
    other = action == sqlite3.SQLITE_ATTACH and first not in ("", ":memory:")
    return sqlite3.SQLITE_DENY if other else sqlite3.SQLITE_OK


def run(connection: sqlite3.Connection, statement: str, rows: int) -> None:
    """Run one statement and print the rows that it returns, or the number of changed rows."""
    before = connection.total_changes
    cursor = connection.execute(statement)
    if cursor.description is None:
        changed = connection.total_changes - before
        say(f"ok, rows changed: {changed}" if changed else "ok")
        return
    say(" | ".join(column[0] for column in cursor.description))
    count = 0
    for row in cursor:
        count += 1
        if count <= rows:
            say(" | ".join(cell(value) for value in row))
    say(f"(rows: {count}{f', the first {rows} shown' if count > rows else ''})")


def cell(value: Any) -> str:
    """Return a value in one line. Beyond `CELL` characters it is cut and ends with `...`."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"x'{value[: CELL // 2].hex()}'" + ("..." if len(value) > CELL // 2 else "")
    text = str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return text if len(text) <= CELL else text[:CELL] + "..."


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main() -> int:
    """Run the task and return the exit status: 1 if a statement failed or there is none."""
    task = json.load(sys.stdin)
    # One pipe for both, so that errors are in their place among the results.
    os.dup2(1, 2)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # it is a TextIOWrapper
    done = 0
    try:
        with contextlib.closing(sqlite3.connect(task["database"], isolation_level=None)) as connection:
            connection.set_authorizer(only_this_file)
            # SQLite stores any bytes as text, and a decoding error would fail the statement.
            connection.text_factory = lambda raw: raw.decode(errors="replace")
            for statement in statements(task["code"]):
                run(connection, statement, task["rows"])
                done += 1
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        why = "opening another database file is not allowed" if "authoriz" in str(error) else error
        say(f"statement {done + 1} failed: {why}{'; the statements before it were executed' if done else ''}")
        return 1
    if not done:
        say("the code has no SQL statement")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
