"""The sql agent's tools on real databases: reading changes nothing, whatever the statement says.

DuckDB, PostgreSQL and MySQL are tried where their drivers (and a server of PostgreSQL) are here, else skipped.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest
from support.agent_runs import AgentRunner
from support.fake_models import Reply
from support.postgres import Postgres, running

from callboard.actors.work.library import AGENTS

from .test_reviewers import tools_of

WRITES = [
    "INSERT INTO people VALUES (9, 'x', 1)",
    "UPDATE people SET age = 0",
    "DELETE FROM people",
    "DROP TABLE people",
    "CREATE TABLE more (id INTEGER)",
]


@pytest.fixture
def sql(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name in ("LLM_AGENT_VAR_DSN", "USQL_DSN", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tools_of("sql")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "a b.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT NOT NULL, age INTEGER)")
        connection.executemany("INSERT INTO people VALUES (?, ?, ?)", [(1, "Ada", 36), (2, "Grace", 85)])
    connection.close()
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{path}")
    return path


def refused(call: Any, *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        call(*arguments)
    return str(ended.value)


def test_sqlite_is_looked_at_and_read(sql: ModuleType, file: Path) -> None:
    assert sql.schema()["database"] == "sqlite"
    assert sql.schema()["rows"][0][:2] == ["people", "table"]
    assert [row[0] for row in sql.schema("people")["rows"]] == ["id", "name", "age"]
    assert sql.query("SELECT name FROM people ORDER BY age") == {"columns": ["name"], "rows": [["Ada"], ["Grace"]]}
    assert "no such table" in refused(sql.query, "SELECT * FROM nobody")
    assert "there is no table or view nobody" in refused(sql.schema, "nobody")
    sql.change('CREATE TABLE "a.b" (c)')
    assert sql.schema("a.b")["rows"][0][0] == "c"
    assert "can't be looked up" in refused(sql.schema, "x'); DROP TABLE people --")


@pytest.mark.parametrize(
    "statement",
    [
        *WRITES,
        "WITH x AS (SELECT 1) INSERT INTO people SELECT 9, 'x', 1",
        "PRAGMA user_version = 7",
        "PRAGMA writable_schema = ON",
        "SELECT 1; DELETE FROM people",
        "VACUUM",
        "REINDEX",
    ],
)
def test_sqlite_itself_refuses_to_write_for_who_reads(sql: ModuleType, file: Path, statement: str) -> None:
    before = file.read_bytes()
    with contextlib.suppress(SystemExit):
        sql.query(statement)
    assert file.read_bytes() == before


@pytest.mark.parametrize("call", ["query", "change"])
def test_sqlite_opens_no_other_file(sql: ModuleType, file: Path, call: str) -> None:
    other = file.with_name("other.db")
    for statement in (f"ATTACH '{other}' AS o", f"ATTACH 'file:{other}?mode=rwc' AS o", f"VACUUM INTO '{other}'"):
        assert re.search("not authorized|authorization denied", refused(getattr(sql, call), statement))
    assert not other.exists()


def test_turning_query_only_off_makes_no_writer(sql: ModuleType, file: Path) -> None:
    sql.query("PRAGMA query_only = OFF")
    assert "readonly" in refused(sql.query, "DELETE FROM people")


def test_a_change_is_there_afterwards_and_a_failed_one_is_not(sql: ModuleType, file: Path) -> None:
    assert sql.change("UPDATE people SET age = age + 1") == {"changed": 2}
    assert sql.query("SELECT sum(age) FROM people")["rows"] == [[123]]
    assert "UNIQUE" in refused(sql.change, "INSERT INTO people VALUES (3, 'x', 1), (1, 'y', 1)")
    assert sql.query("SELECT count(*) FROM people")["rows"] == [[2]]
    assert sql.change("INSERT INTO people VALUES (4, 'z', 1) RETURNING id")["rows"] == [[4]]
    assert sql.query("SELECT count(*) FROM people")["rows"] == [[3]]


def test_a_result_is_bounded_in_rows_bytes_and_time(
    sql: ModuleType, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n {}) SELECT {} FROM n"
    found = sql.query(many.format("LIMIT 100000", "i"))
    assert (len(found["rows"]), found["cut"]) == (200, "only the first 200 rows are here")
    found = sql.query(many.format("LIMIT 100000", "hex(zeroblob(100000))"))
    assert len(found["rows"]) < 60
    assert len(found["rows"][0][0]) == 1_001
    assert sql.query("SELECT x'00ff', NULL, 1.5, 'é', 9e999")["rows"] == [["0x00ff", None, 1.5, "é", "inf"]]
    assert "too big" in refused(sql.query, "SELECT hex(zeroblob(300000000))")  # of which SQLite makes several copies
    monkeypatch.setattr(sql, "SECONDS", 0.2)
    assert "interrupted" in refused(sql.query, many.format("", "count(*)"))


def test_the_database_is_named_by_variable_or_environment(
    sql: ModuleType, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in (
        str(file),
        f"sqlite:{file}",
        f"sqlite3:{file}",
        f"sqlite:///{file}",
        f"sqlite:///{file}?mode=rwc",
        f"sq:{file}",
    ):
        monkeypatch.setenv("LLM_AGENT_VAR_DSN", text)
        assert sql.query("SELECT 1")["rows"] == [[1]], text
    monkeypatch.setenv("LLM_AGENT_VAR_DSN", "oracle://x/y")
    assert "oracle:// can't be reached" in refused(sql.query, "SELECT 1")
    monkeypatch.setenv("LLM_AGENT_VAR_DSN", str(file) + "x")
    assert "there is no database" in refused(sql.change, "CREATE TABLE x (y INTEGER)")
    for name in ("LLM_AGENT_VAR_DSN", "DATABASE_URL"):
        monkeypatch.delenv(name)
    assert "no database is named" in refused(sql.query, "SELECT 1")


@pytest.mark.parametrize(
    ("url", "driver"), [("postgres://u:s3cret@127.0.0.1:9/x", "psycopg"), ("mysql://u:s3cret@127.0.0.1:9/x", "pymysql")]
)
def test_a_driver_that_is_missing_is_named_with_the_command_and_no_password_is_told(
    sql: ModuleType, monkeypatch: pytest.MonkeyPatch, url: str, driver: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setitem(sys.modules, driver, None)
    told = refused(sql.query, "SELECT 1")
    assert f"{sys.executable} -m pip install" in told
    assert "s3cret" not in told
    assert sql._without_password("for s3cret and p@ss", "pg://u:p%40ss@h/x") == "for s3cret and ***"


# --- as an agent


async def test_the_agent_reads_unasked_and_is_asked_before_it_changes(
    agent_runner: AgentRunner, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement = {"sql": "DELETE FROM people"}
    for yes, left in ((False, 2), (True, 0)):
        agent_runner.models.script(
            Reply(calls=[("schema", {}), ("query", {"sql": "SELECT count(*) FROM people"})]),
            Reply(calls=[("change", statement)]),
            Reply(text="done"),
        )
        values = {"dsn": str(file)}
        outcome = await agent_runner.run("Delete all.", target="sql", model="fake:m", variables=values, yes=yes)
        assert outcome.output == "done"
        sent = str(agent_runner.models.requests[-1].json["messages"])
        assert ("was not run" in sent) is not yes
        with sqlite3.connect(file) as connection:
            assert connection.execute("SELECT count(*) FROM people").fetchone() == (left,)
        connection.close()


# --- databases that need a driver


def test_duckdb_refuses_to_write_for_who_reads_and_touches_no_other_file(
    sql: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "x.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name VARCHAR, age INTEGER)")
        connection.execute("INSERT INTO people VALUES (1, 'Ada', 36), (2, 'Grace', 85)")
    monkeypatch.setenv("DATABASE_URL", f"duckdb:{path}")
    assert sql.schema()["rows"] == [["main", "people", "BASE TABLE"]]
    assert [row[1] for row in sql.schema("main.people")["rows"]] == ["id", "name", "age"]
    assert sql.query("SELECT name FROM people ORDER BY id")["rows"] == [["Ada"], ["Grace"]]
    other = tmp_path / "other"
    for statement in (
        *WRITES,
        f"COPY people TO '{other}.csv'",
        f"ATTACH '{other}.duckdb'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SET enable_external_access = true",
        "SELECT 1; DELETE FROM people",
        "SELECT 1; SELECT 2",
    ):
        assert refused(sql.query, statement).startswith("duckdb: "), statement
    assert [path.name for path in tmp_path.iterdir()] == ["x.duckdb"]
    sql.change("UPDATE people SET age = 1")
    assert sql.query("SELECT sum(age)::INTEGER FROM people")["rows"] == [[2]]
    assert sql.query("SELECT * FROM range(100000)")["cut"]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server of these tests' own, on a socket in a short directory."""
    with running() as made:
        yield made


@pytest.fixture
def postgres(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty database in it."""
    name = server.database().partition("dbname=")[2].split()[0]
    url = f"pgsql://me:s3cret@/{name}?host={server.home}"
    monkeypatch.setenv("DATABASE_URL", url)
    return url


def test_postgresql_refuses_to_write_for_who_reads(sql: ModuleType, postgres: str) -> None:
    sql.change("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)")
    assert sql.change("INSERT INTO people VALUES (1, 'Ada', 36), (2, 'Grace', 85)") == {"changed": 2}
    sql.change("CREATE FUNCTION wipe() RETURNS int LANGUAGE sql AS 'DELETE FROM people; SELECT 1'")
    assert sql.schema()["rows"] == [["public", "people", "BASE TABLE"]]
    assert [row[1] for row in sql.schema("people")["rows"]] == ["id", "name", "age"]
    assert sql.query("SELECT name FROM people ORDER BY id") == {"columns": ["name"], "rows": [["Ada"], ["Grace"]]}
    assert sql.query("SELECT 1 AS one WHERE false")["rows"] == []
    for statement in (
        *WRITES,
        "WITH d AS (DELETE FROM people RETURNING *) SELECT * FROM d",
        "SELECT wipe()",
        "SELECT set_config('transaction_read_only', 'off', false), wipe()",
        "SELECT 1; DELETE FROM people",
        "COMMIT; DELETE FROM people",
        "SET TRANSACTION READ WRITE",
        "SET transaction_read_only = off",
    ):
        assert refused(sql.query, statement).startswith("postgresql: "), statement
    for statement in ("COMMIT", "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE"):
        with pytest.raises(SystemExit):
            sql.query(statement)
    assert sql.query("SELECT count(*) FROM people")["rows"] == [[2]]
    assert sql.query("-- all\nTABLE people;")["rows"][0] == [1, "Ada", 36]
    assert sql.query("EXPLAIN (ANALYZE) SELECT 1")["rows"]
    assert sql.query("SHOW transaction_read_only")["rows"] == [["on"]]
    assert sql.query("SELECT 'NaN'::float8, 5 % 3, '%s'")["rows"] == [["nan", 2, "%s"]]
    found = sql.query("SELECT i, repeat('x', 5000) FROM generate_series(1, 3000000) AS i")
    assert 0 < len(found["rows"]) < 60
    assert found["cut"]


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1) TO PROGRAM 'touch {file}'",
        "SELECT pg_read_file('/etc/hostname')",
        *(
            pytest.param(statement, marks=pytest.mark.soak)
            for statement in (
                "COPY (SELECT 1) TO '{file}'",
                "DO $$ BEGIN COPY (SELECT 1) TO PROGRAM 'touch {file}'; END $$",
                "EXPLAIN ANALYZE SELECT pg_read_file('/etc/hostname')",
                "CHECKPOINT",
                "NOTIFY x",
                "SELECT 1; COPY (SELECT 1) TO '{file}'",
            )
        ),
    ],
)
def test_postgresql_does_nothing_outside_of_tables_for_who_reads_not_even_for_a_superuser(
    sql: ModuleType, postgres: str, statement: str
) -> None:
    """A read-only transaction lets `COPY` start programs, and nobody is asked before a query."""
    file = Path(postgres.partition("=")[2]) / "made"
    assert refused(sql.query, statement.format(file=file)).startswith("postgresql: ")
    assert not file.exists()


def test_postgresql_ends_a_statement_that_takes_too_long(
    sql: ModuleType, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "SECONDS", 1)
    told = refused(sql.query, "SELECT pg_sleep(30)")
    assert "statement timeout" in told
    assert "s3cret" not in told
    assert (AGENTS / "sql/config.yaml").is_file()


def test_mysql_is_in_a_read_only_transaction_before_it_sees_the_statement(
    sql: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a driver that writes down what it is told; there is no server of MySQL for tests."""
    told: list[str] = []
    given: dict[str, Any] = {}

    class Cursor:
        description = (("one",),)
        rowcount = 3

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def execute(self, text: str) -> None:
            told.append(text)

        def fetchone(self) -> None:
            return None

    class Connection:
        def cursor(self) -> Cursor:
            return Cursor()

        def commit(self) -> None:
            told.append("(commit)")

        def close(self) -> None:
            told.append("(close)")

    def connect(**options: Any) -> Connection:
        given.update(options)
        return Connection()

    driver = ModuleType("pymysql")
    driver.connect = connect
    driver.cursors = ModuleType("cursors")
    driver.cursors.SSCursor = object
    monkeypatch.setitem(sys.modules, "pymysql", driver)
    monkeypatch.setenv("DATABASE_URL", "mysql://me:p%40ss@db.example.org:3307/shop?ssl-mode=REQUIRED")
    assert sql.query("SELECT 1") == {"columns": ["one"], "rows": []}
    *before, statement, end = told
    assert before[-2:] == ["SET SESSION TRANSACTION READ ONLY", "START TRANSACTION READ ONLY"]
    assert (statement, end) == ("SELECT 1", "(close)")
    assert (given["host"], given["port"], given["user"], given["password"]) == ("db.example.org", 3307, "me", "p@ss")
    assert given["ssl"].check_hostname
    for statement in (
        "SET GLOBAL max_connections = 1",
        "/*! KILL 1 */",
        "CALL wipe()",
        "-- SELECT\nSHUTDOWN",
        "#SELECT",
    ):
        assert "this is no query" in refused(sql.query, statement)
    for statement in ("# a\n-- b\n/* c * */ (select 1)", "with x as (select 1) select * from x", "DESC people"):
        sql.query(statement)
    told.clear()
    sql.change("DELETE FROM people")
    assert told == ["DELETE FROM people", "(commit)", "(close)"]
