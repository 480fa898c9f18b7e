"""Reads and changes one database: SQLite, DuckDB, PostgreSQL, MySQL.

That reading changes nothing is the database's promise, not that of a look at the SQL: SQLite and DuckDB open the file
read-only, PostgreSQL and MySQL are in a read-only transaction, and each call is a connection of its own that takes one
statement. Read-only transactions are about tables, though. So PostgreSQL reads by a cursor, which takes queries alone
(`COPY ... TO PROGRAM` is none), and a superuser reads as `pg_read_all_data`; MySQL gets what begins as a query does.
Functions that a server lets a login call may still do what they like, and MySQL's `INTO OUTFILE` writes a file for who
has that privilege: name a login that may do no more than it has to.
"""

from __future__ import annotations

import importlib
import math
import os
import re
import sqlite3
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

SECONDS = 60
"""Of one statement."""

ROWS = 200
BYTES = 48_000
CELL = 1_000
LARGEST_VALUE = 32_000_000
"""Bytes of a value that SQLite makes; a function can make one of a gigabyte, and several copies of it."""

DRIVERS = {"duckdb": "duckdb", "psycopg": "psycopg[binary]", "pymysql": "pymysql"}
FORMS = "expected postgres://USER@HOST/NAME, mysql://USER@HOST/NAME, duckdb:FILE, sqlite:FILE, or a file"
KINDS = {
    "postgresql": ("postgres", "postgresql", "pgsql", "pg"),
    "mysql": ("mysql", "mariadb", "maria", "my"),
    "duckdb": ("duckdb", "ddb"),
    "sqlite": ("sqlite", "sqlite3", "sq", "file"),
}
"""Each kind with the schemes of its URLs, usql's among them."""


def schema(table: str = "") -> dict[str, Any]:
    """List the tables and views of the database, or the columns of one of them.

    Args:
        table: Name of a table, as this tool lists it; empty for the list.
    """
    kind, _ = _target()
    if table and not re.fullmatch(r"[^\x00'\"`\\]{1,200}", table):
        raise SystemExit("a name with quotes, backslashes or more than 200 characters can't be looked up: use query")
    where, _, name = ("", "", table) if kind == "sqlite" else table.rpartition(".")
    found = _run(_schema_query(kind, where, name), writes=False)
    if table and not found["rows"]:
        raise SystemExit(f"there is no table or view {table}")
    return {"database": kind, **found}


def query(sql: str) -> dict[str, Any]:
    """Read from the database. The connection is read-only. Returns at most 200 rows.

    Args:
        sql: One statement, in the dialect of the database.
    """
    return _run(sql, writes=False)


def change(sql: str) -> dict[str, Any]:
    """Change data or tables of the database. A person is asked first. Returns how many rows were changed.

    Args:
        sql: One statement, in the dialect of the database.
    """
    return _run(sql, writes=True)


def _run(sql: str, writes: bool) -> dict[str, Any]:
    if not sql.strip():
        raise SystemExit("the statement is empty")
    kind, url = _target()
    try:
        return _OPENERS[kind](url, sql, writes)
    except Exception as error:  # noqa: BLE001 - each driver has errors of its own; the model reads their text
        raise SystemExit(_without_password(f"{kind}: {str(error).strip() or type(error).__name__}", url)) from None


# --- which database


def _target() -> tuple[str, str]:
    """The kind of the database, and its URL or its file."""
    names = ("LLM_AGENT_VAR_DSN", "USQL_DSN", "DATABASE_URL")
    text = next((value for value in (os.environ.get(name, "").strip() for name in names) if value), "")
    if not text:
        raise SystemExit(f"no database is named: set DATABASE_URL, or --var dsn=...; {FORMS}")
    scheme, colon, rest = text.partition(":")
    named = scheme.lower().split("+")[0]
    kind = next((kind for kind, schemes in KINDS.items() if colon and named in schemes), None)
    if kind in ("postgresql", "mysql"):
        return kind, text
    if kind is not None:
        file = rest[3:] if rest.startswith("///") else rest.removeprefix("//")
    elif "://" in text:
        raise SystemExit(f"a database {scheme}:// can't be reached; {FORMS}")
    else:
        file, kind = text, "duckdb" if text.endswith((".duckdb", ".ddb")) else "sqlite"
    return kind, str(Path(unquote(file.partition("?")[0])).expanduser())


def _without_password(text: str, url: str) -> str:
    """Some drivers repeat what they were given."""
    parts = urlsplit(url) if "://" in url else None
    for secret in {parts.password, unquote(parts.password)} if parts is not None and parts.password else ():
        text = text.replace(secret, "***")
    return text[:4_000]


def _driver(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise SystemExit(
            f"the driver {name} is not installed; {sys.executable} -m pip install '{DRIVERS[name]}' installs it"
        ) from None


def _there(file: str) -> str:
    if not Path(file).is_file():
        raise SystemExit(f"there is no database {file}")
    return file


# --- results


def _rows(columns: list[str], rows: Iterator[Any]) -> dict[str, Any]:
    """The first rows, within bounds."""
    shown: list[list[Any]] = []
    size = 0
    more = False
    for row in rows:
        values = [_value(value) for value in row]
        size += sum(len(str(value)) + 4 for value in values)
        if len(shown) == ROWS or size > BYTES:
            more = True
            break
        shown.append(values)
    found: dict[str, Any] = {"columns": columns, "rows": shown}
    if more:
        found["cut"] = f"only the first {len(shown)} rows are here"
    return found


def _value(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        return f"0x{data[: CELL // 2].hex()}" + ("…" if len(data) > CELL // 2 else "")
    text = str(value)
    return text if len(text) <= CELL else text[:CELL] + "…"


def _result(cursor: Any, writes: bool) -> dict[str, Any]:
    """Of a cursor of DB-API: its rows, or how many it has changed."""
    if cursor.description:
        found = _rows([column[0] for column in cursor.description], iter(cursor.fetchone, None))
        return {**found, "changed": True} if writes else found
    return {"changed": max(cursor.rowcount, 0)} if writes else {"columns": [], "rows": []}


# --- the databases


def _sqlite(file: str, sql: str, writes: bool) -> dict[str, Any]:
    uri = Path(_there(file)).absolute().as_uri() + ("?mode=rw" if writes else "?mode=ro")
    with closing(sqlite3.connect(uri, uri=True, timeout=SECONDS / 2)) as connection:
        if not writes:
            connection.execute("PRAGMA query_only = ON")
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        connection.set_authorizer(_only_this_file)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
        with _interrupted(connection.interrupt), connection:
            return _result(connection.execute(sql), writes)


def _only_this_file(action: int, first: Any, *_: Any) -> int:
    """SQLite asks before everything. ATTACH and VACUUM INTO would open another file, and in another mode."""
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH and first != "" else sqlite3.SQLITE_OK


def _duckdb(file: str, sql: str, writes: bool) -> dict[str, Any]:
    duckdb = _driver("duckdb")
    # Without them a statement could read and write other files, attach databases, and load extensions.
    shut = {"enable_external_access": "false", "autoinstall_known_extensions": "false", "lock_configuration": "true"}
    connection = duckdb.connect(_there(file), read_only=not writes, config=shut)
    with closing(connection), _interrupted(connection.interrupt):
        if len(connection.extract_statements(sql)) > 1:
            raise ValueError("there are several statements; write one per call")
        return _result(connection.execute(sql), writes)


def _postgresql(url: str, sql: str, writes: bool) -> dict[str, Any]:
    psycopg = _driver("psycopg")
    with psycopg.connect(
        "postgresql" + url[url.index("://") :], connect_timeout=20, client_encoding="utf8"
    ) as connection:
        connection.read_only = not writes
        connection.execute(f"SET LOCAL statement_timeout = {SECONDS * 1000}")
        # The transaction has a snapshot now: from here on the server lets nothing make it one that writes.
        connection.execute("SELECT 1 FROM pg_catalog.pg_class LIMIT 1").fetchall()
        with connection.cursor() as cursor:
            # `prepare`: in the protocol that takes a single statement, no `COMMIT; DELETE ...`.
            if writes:
                return _result(cursor.execute(sql, prepare=True), writes=True)
            superuser = "SELECT rolsuper AND to_regrole('pg_read_all_data') IS NOT NULL FROM pg_catalog.pg_roles"
            if cursor.execute(f"{superuser} WHERE rolname = current_user").fetchone() == (True,):
                cursor.execute("SET LOCAL ROLE pg_read_all_data")
            if _ABOUT_QUERIES.match(sql):
                return _result(cursor.execute(sql, prepare=True), writes=False)
            cursor.execute(f"DECLARE callboard NO SCROLL CURSOR FOR {sql}", prepare=True)
            return _result(cursor.execute(f"FETCH {ROWS + 1} FROM callboard"), writes=False)


_ABOUT_QUERIES = re.compile(r"\s*(?:EXPLAIN|SHOW)\b", re.IGNORECASE)
"""What reads as well and no cursor takes."""


def _mysql(url: str, sql: str, writes: bool) -> dict[str, Any]:
    pymysql = _driver("pymysql")
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    tls = (
        {"ssl": ssl.create_default_context()}
        if options.get("ssl") or options.get("ssl-mode", "").upper() == "REQUIRED"
        else {}
    )
    with closing(
        pymysql.connect(
            host=parts.hostname or "localhost",
            port=parts.port or 3306,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=unquote(parts.path.lstrip("/")) or None,
            charset="utf8mb4",
            connect_timeout=20,
            read_timeout=SECONDS,
            cursorclass=pymysql.cursors.SSCursor,
            **tls,
        )
    ) as connection:
        with connection.cursor() as cursor:
            if not writes:
                if not _MYSQL_READS.match(sql):
                    raise ValueError("this is no query: change asks a person, and then does it")
                cursor.execute(f"SET SESSION sql_select_limit = {ROWS + 1}")
                cursor.execute("SET SESSION TRANSACTION READ ONLY")
                cursor.execute("START TRANSACTION READ ONLY")
            cursor.execute(sql)  # a single statement: several are not turned on
            found = _result(cursor, writes)
        if writes:
            connection.commit()
        return found


_MYSQL_READS = re.compile(
    r"(?:\s|\(|--\s[^\n]*\n|#[^\n]*\n|/\*(?![!+M])(?:[^*]|\*(?!/))*\*/)*"
    r"(?:SELECT|WITH|VALUES|TABLE|SHOW|DESC|DESCRIBE|EXPLAIN)\b",
    re.IGNORECASE,
)
"""How queries begin. In a read-only transaction `SET GLOBAL`, `KILL`, `FLUSH` and `SHUTDOWN` work."""


class _interrupted:  # noqa: N801 - used like a function
    """Has a statement interrupted when its time is up."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._timer = threading.Timer(SECONDS, interrupt)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


_OPENERS = {"sqlite": _sqlite, "duckdb": _duckdb, "postgresql": _postgresql, "mysql": _mysql}


def _schema_query(kind: str, where: str, name: str) -> str:
    """The catalogue is asked in SQL, too. The name holds no quotes."""
    if kind == "sqlite":
        if name:
            return f"SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info('{name}')"
        return "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
    own = "table_schema NOT IN ('information_schema', 'pg_catalog', 'mysql', 'performance_schema', 'sys')"
    if not name:
        return f"SELECT table_schema, table_name, table_type FROM information_schema.tables WHERE {own} ORDER BY 1, 2"
    of = f" AND table_schema = '{where}'" if where else ""
    return (
        "SELECT table_schema, column_name, data_type, is_nullable, column_default FROM information_schema.columns"
        f" WHERE {own} AND table_name = '{name}'{of} ORDER BY table_schema, ordinal_position"
    )
