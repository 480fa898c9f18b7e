"""execute_command, execute_py_code and execute_sql_code, with real programs."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import trio
import trio.testing
from support.messages import says
from support.waiting import jump_when

from callboard.actors.work.tools.builtin import commands
from callboard.actors.work.tools.builtin.commands import BoundedOutput
from callboard.actors.work.tools.files.call_process import CallLimits
from callboard.protocol.errors import ToolFailed
from callboard.protocol.events import ToolDelta

if TYPE_CHECKING:
    from .conftest import Bench


# --- commands


async def test_output_and_errors_come_in_the_order_they_were_written(call: Bench) -> None:
    text = await call("execute_command", command="echo one; echo two >&2; echo three")
    assert text == "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("true", "DONE"),
        ("false", "[exit status 1]"),
        ("echo hi; exit 3", "hi\n[exit status 3]"),
        ("printf hi; exit 3", "hi\n[exit status 3]"),
        ("kill -9 $$", "[signal 9]"),
    ],
)
async def test_an_exit_status_other_than_0_is_told_not_raised(call: Bench, command: str, told: str) -> None:
    assert await call("execute_command", command=command) == told


async def test_the_command_reaches_bash_as_it_was_written(call: Bench) -> None:
    command = 'x="it\'s $((1+1))"; printf \'%s|\' "$x" "$0" $# \'\\\'; [[ a == a ]] && echo yes'
    assert await call("execute_command", command=command) == "it's 2|bash|0|\\|yes\n"


async def test_a_syntax_error_is_told_by_bash(call: Bench) -> None:
    assert "syntax error" in await call("execute_command", command="echo (")


async def test_a_command_runs_where_relative_paths_start_with_our_environment(call: Bench) -> None:
    call.environ["GREETING"] = "hello"
    assert await call("execute_command", command="pwd; echo $GREETING") == f"{call.project}\nhello\n"


async def test_a_command_has_no_input(call: Bench) -> None:
    assert await call("execute_command", command="cat; echo over") == "over\n"


@pytest.mark.parametrize("command", ["", "  \n", "a\0b"])
async def test_a_command_that_is_none_is_refused(call: Bench, command: str) -> None:
    with pytest.raises(ToolFailed):
        await call("execute_command", command=command)


async def test_a_command_that_takes_too_long_is_ended_with_what_it_said(
    call: Bench, tmp_path: Path, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    call.timeout = 60
    working = tmp_path / "working"
    nursery.start_soon(jump_when, mock_clock, working.exists, 60)
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.commands._run", seconds=60)) as caught:
        await call("execute_command", command=f"echo working; sleep 1; : > {working}; exec sleep 1000")
    assert caught.value.stderr == "working\n"


async def test_a_command_is_ended_before_its_call_is_cut_off_so_that_its_output_is_told(call: Bench) -> None:
    call.within = 5
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.commands._run")) as caught:
        await call("execute_command", command="echo working; trap '' TERM; while :; do sleep 0.05; done")
    assert caught.value.stderr == "working\n"


async def test_a_command_that_starts_processes_without_end_is_ended(
    call: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "LIMITS", CallLimits(processes=20))
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.commands._run.3")):
        await call("execute_command", command="for i in $(seq 60); do sleep 1000 & done; wait")


async def test_what_a_command_leaves_behind_is_ended_with_it(call: Bench) -> None:
    text = await call("execute_command", command="sleep 1000 & echo $!")
    assert not psutil.pid_exists(int(text))


async def test_a_cancelled_call_leaves_no_process(call: Bench) -> None:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: call("execute_command", command="echo $$ > pid; echo up; exec sleep 1000"))
            while not any(isinstance(event.data, ToolDelta) for event in call.events):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        while call.root.actor.child_count:
            await trio.lowlevel.checkpoint()
    assert not psutil.pid_exists(int((call.project / "pid").read_text()))


async def test_of_much_output_the_beginning_and_the_end_are_kept(call: Bench) -> None:
    text = await call("execute_command", command="echo first; seq 200000; echo last")
    assert text.startswith("first\n1\n2\n")
    assert text.endswith("200000\nlast\n")
    assert "bytes left out" in text
    assert len(text) < commands.HEAD + commands.TAIL + 100


async def test_a_command_that_prints_without_end_is_ended(call: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "ENOUGH", 1_000_000)
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.commands._run.3")) as caught:
        await call("execute_command", command="yes")
    assert len(caught.value.stderr) <= commands.FAREWELL + 3


async def test_lines_become_events_as_they_come_and_only_so_many(call: Bench) -> None:
    await call("execute_command", command="echo one; printf two; yes | head -c 1000000")
    told = [event.data.text for event in call.events if isinstance(event.data, ToolDelta)]
    assert told[0] == "one"
    assert re.fullmatch(says("work.tools.files.call_process.Printed.show"), told[-1])
    assert sum(len(line) + 1 for line in told) <= commands.HEARD + 8 * 1024 + 50


async def test_bytes_that_are_no_text_are_shown_somehow(call: Bench) -> None:
    assert await call("execute_command", command=r"printf 'a\377\0b'") == "a\ufffd\0b"


async def test_a_command_too_long_for_the_system_is_told(call: Bench) -> None:
    with pytest.raises(ToolFailed, match="can't start"):
        await call("execute_command", command="true " + "x" * 3_000_000)


def test_what_is_kept_is_exact_up_to_the_limit() -> None:
    for size in (0, 1, commands.HEAD, commands.HEAD + 1, commands.HEAD + commands.TAIL):
        data = bytes(97 + index % 26 for index in range(size))
        for step in (7919, size or 1):
            printed = BoundedOutput()
            for start in range(0, size, step):
                printed.add(data[start : start + step])
            assert printed.text == data.decode()
    printed.add(b"!")
    assert "[... 1 bytes left out ...]" in printed.text
    assert printed.text.endswith("!")


# --- python


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("print('a'); print('b')", "a\nb\n"),
        ("x = 3\nx * 2", "6\n"),
        ("'a text'", "a text\n"),
        ("None", "DONE"),
        ("def f():\n    return __name__\nf()", "__main__\n"),
        ("import sys; sys.exit(4)", "[exit status 4]"),
        ("import sys\nprint('1')\nprint('2', file=sys.stderr)\nprint('3')", "1\n2\n3\n"),
        ("print(input())", "EOF"),
        ("print('ü😀')", "ü😀\n"),
    ],
)
@pytest.mark.sample(4)
async def test_code_is_run_and_its_last_value_printed(call: Bench, code: str, told: str) -> None:
    call.environ["PYTHONUTF8"] = "1"
    text = await call("execute_py_code", code=code)
    assert told in text if told == "EOF" else text == told


async def test_an_error_shows_the_codes_own_lines_and_no_others(call: Bench) -> None:
    text = await call("execute_py_code", code="def f():\n    return 1 / 0\n\nf()")
    assert text.endswith("ZeroDivisionError: division by zero\n[exit status 1]")
    assert "return 1 / 0" in text
    assert "python_code.py" not in text
    text = await call("execute_py_code", code="1 +")
    assert 'File "<code>", line 1' in text
    assert "python_code.py" not in text


async def test_code_imports_from_the_working_directory_and_not_from_us(call: Bench) -> None:
    call.file("search.py", "mine = True")
    assert await call("execute_py_code", code="import search\nsearch.mine") == "True\n"
    assert await call("execute_py_code", code="import sql") != "DONE"


async def test_the_virtual_environment_of_the_working_directory_is_used(call: Bench) -> None:
    call.file(".venv/bin/python", "#!/bin/sh\necho from the venv\n").chmod(0o755)
    assert await call("execute_py_code", code="1") == "from the venv\n"


# --- sql


async def test_statements_run_in_order_and_rows_are_a_table(call: Bench) -> None:
    code = "create table t(a, b); insert into t values (1, 'x;y'), (2, null), (x'00ff', 'a\nb'); select * from t"
    assert await call("execute_sql_code", database="t.db", code=code) == (
        "ok\nok, rows changed: 3\na | b\n1 | x;y\n2 | NULL\nx'00ff' | a\\nb\n(rows: 3)\n"
    )
    assert await call("execute_sql_code", database="t.db", code="select count(*) as n from t") == "n\n3\n(rows: 1)\n"


async def test_only_so_many_rows_are_shown(call: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "ROWS", 2)
    text = await call("execute_sql_code", database=":memory:x.db", code="values (1), (2), (3)")
    assert text == "column1\n1\n2\n(rows: 3, the first 2 shown)\n"


async def test_a_failing_statement_is_told_with_its_number(call: Bench) -> None:
    with pytest.raises(ToolFailed, match="statement 2 failed: no such table: u; the statements before it were"):
        await call("execute_sql_code", database="t.db", code="create table t(a); select * from u; drop table t")
    with sqlite3.connect(call.project / "t.db") as connection:
        assert connection.execute("select name from sqlite_master").fetchall() == [("t",)]
    connection.close()


@pytest.mark.parametrize("code", ["attach 'other.db' as o", "vacuum into 'other.db'"])
async def test_no_statement_opens_another_file(call: Bench, code: str) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.workers.sql.main")):
        await call("execute_sql_code", database="t.db", code=code)
    assert not (call.project / "other.db").exists()


@pytest.mark.parametrize("code", ["", "  \n"])
async def test_code_without_a_statement_is_told(call: Bench, code: str) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.workers.sql.main.3")):
        await call("execute_sql_code", database="t.db", code=code)


async def test_the_database_of_the_arguments_is_confined_like_a_file(call: Bench) -> None:
    for path in ("../t.db", "/tmp/t.db", "~/t.db"):
        with pytest.raises(ToolFailed):
            await call("execute_sql_code", database=path, code="select 1")
    (call.project / "d").mkdir()
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.commands._database", text="d")):
        await call("execute_sql_code", database="d", code="select 1")


@pytest.mark.parametrize(
    ("environ", "database"),
    [
        ({"USQL_DSN": "sqlite3:rel.db"}, "rel.db"),
        ({"USQL_DSN": "sqlite3:///abs/x.db"}, "/abs/x.db"),
        ({"USQL_DSN": "sq:x.db", "DATABASE_URL": "sqlite:///y.db"}, "x.db"),
        ({"USQL_DSN": "plain.db"}, "plain.db"),
        ({"USQL_DSN": "sqlite3:x.db?mode=ro"}, "x.db"),
        ({"DATABASE_URL": "sqlite:///rel.db"}, "rel.db"),
        ({"DATABASE_URL": "sqlite:////abs/x.db"}, "/abs/x.db"),
        ({"DATABASE_URL": "sqlite://"}, ":memory:"),
        ({"DATABASE_URL": "sqlite:///:memory:"}, ":memory:"),
        ({"DATABASE_URL": ":memory:"}, ":memory:"),
    ],
)
def test_the_users_database_is_read_from_the_environment(environ: dict[str, str], database: str) -> None:
    assert commands.configured(environ) == database


@pytest.mark.parametrize("environ", [{"DATABASE_URL": "postgres://u:secret@h/d"}, {"USQL_DSN": "mysql:u:secret@h"}])
def test_another_kind_of_database_is_told_without_its_password(environ: dict[str, str]) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.commands.configured")) as caught:
        commands.configured(environ)
    assert "secret" not in str(caught.value)


async def test_without_a_database_the_way_to_one_is_told(call: Bench) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.commands.configured.2")):
        await call("execute_sql_code", code="select 1")
