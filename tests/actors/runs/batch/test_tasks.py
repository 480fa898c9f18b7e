"""What is read of a batch's tasks, and what is wrong with them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from support.messages import says

from callboard.actors.runs.batch.tasks import BatchTask, read_tasks
from callboard.protocol.errors import InvalidFile, UsageError

TABLE = 'ID,Task,Attachments,Vars\na,"one,\ntwo",,"{""TONE"": ""dry"", ""N"": 3}"\nb,,"[""x.txt""]",\n\n'


async def test_a_table_is_read_whatever_the_case_of_its_columns(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("x")
    (tmp_path / "t.csv").write_text("\ufeff" + TABLE)
    assert await read_tasks(tmp_path / "t.csv") == [
        BatchTask(id="a", prompt="one,\ntwo", vars={"TONE": "dry", "N": "3"}, line=2),
        BatchTask(id="b", attachments=(str(tmp_path / "x.txt"),), line=4),
    ]


async def test_lines_of_json_say_the_same_without_quotes_in_quotes(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("x")
    rows = [{"id": 7, "task": "one", "vars": {"TONE": "dry"}}, {"id": "b", "attachments": ["x.txt"]}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = await read_tasks(tmp_path / "t.jsonl")
    assert first == BatchTask(id="7", prompt="one", vars={"TONE": "dry"}, line=1)
    assert second.attachments == (str(tmp_path / "x.txt"),)


async def test_a_sheet_is_a_table(tmp_path: Path) -> None:
    cells = [["id", "task"], ["a", "one"], ["b", "two"]]
    rows = "".join(
        f'<row r="{y}">'
        + "".join(f'<c r="{"AB"[x]}{y}" t="inlineStr"><is><t>{text}</t></is></c>' for x, text in enumerate(row))
        + "</row>"
        for y, row in enumerate(cells, 1)
    )
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    with zipfile.ZipFile(tmp_path / "t.xlsx", "w") as archive:
        archive.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets><sheet name="S" sheetId="1" r:id="r1"/></sheets>'
            "</workbook>",
        )
        archive.writestr(
            "xl/_rels/workbook.xml.rels",
            '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship '
            f'Id="r1" Type="{office}/worksheet" Target="worksheets/s.xml"/></Relationships>',
        )
        archive.writestr("xl/worksheets/s.xml", f'<worksheet xmlns="{main}"><sheetData>{rows}</sheetData></worksheet>')
    assert [(task.id, task.prompt) for task in await read_tasks(tmp_path / "t.xlsx")] == [("a", "one"), ("b", "two")]


async def test_rows_are_numbered_where_no_row_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("task\none\ntwo\n")
    assert [task.id for task in await read_tasks(tmp_path / "t.csv")] == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("id,task\na,one\na,two\n", 3, "the id 'a' is already used in line 2"),
        ("id,task\na,one\n,\nb,two\n", 3, "the row is empty"),
        ("id,task\na,one\n,two\n", 3, "the row has no id"),
        ("id,taks\na,one\n", 1, "(expected one of id, task, attachments, vars)\n    did you mean 'task'?"),
        ('id,task\na,one\nb,"two\nc,three\n', 3, "this row is not valid CSV: unexpected end of data"),
        ("id,task,task\na,one,two\n", 1, "two columns have the same name"),
        ("id,task,vars\na,one,TONE=dry\n", 2, "`vars` is 'TONE=dry'"),
        ('id,task,vars\na,one,"{""X"": [1]}"\n', 2, "expected a JSON object of texts"),
        ("id,task,attachments\na,one,x.png\n", 2, "`attachments` is 'x.png'"),
        ('id,task,attachments\na,one,"[""x.png""]"\n', 2, "x.png to attach"),
        ("id,task\na,one,two\n", 2, "the row has 3 fields"),
        ("id,task\n", 1, "the file has no tasks"),
        ("", 1, "the file has no tasks"),
    ],
)
async def test_what_is_wrong_is_told_with_its_line(text: str, line: int, told: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InvalidFile) as caught:
        await read_tasks(tmp_path / "t.csv")
    (problem,) = caught.value.problems
    assert problem.line == line
    assert told in str(problem)


@pytest.mark.parametrize("between", [";", "\t"])
async def test_spreadsheets_write_semicolons_and_tabs_as_well(between: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f'"Id"{between}task\r\na{between}"one, {between} two"\r\n')
    assert await read_tasks(tmp_path / "t.csv") == [BatchTask(id="a", prompt=f"one, {between} two", line=2)]


async def test_a_task_may_be_as_long_as_a_book(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("task\n" + "x" * 1_000_000 + "\n")
    (task,) = await read_tasks(tmp_path / "t.csv")
    assert len(task.prompt) == 1_000_000


@pytest.mark.parametrize(
    "row", ['{"id": "\\ud83d"}', '{"task": "a\\ud83d"}', '{"vars": {"\\ud83d": "x"}}', '{"vars": {"X": "\\udc00"}}']
)
async def test_half_a_character_is_refused_before_it_is_somebodys_name(row: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(row + "\n")
    with pytest.raises(InvalidFile, match=says("runs.batch.tasks._Reader._task.7")):
        await read_tasks(tmp_path / "t.jsonl")


async def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"task": 3}\n[]\nnonsense\n{}\n{"id": "a", "task": "one"}\n')
    with pytest.raises(InvalidFile) as caught:
        await read_tasks(tmp_path / "t.jsonl")
    assert [problem.line for problem in caught.value.problems] == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["t.txt", "missing.csv"])
async def test_a_file_that_is_none_is_wrong_usage(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("id,task\n")
    with pytest.raises(UsageError):
        await read_tasks(tmp_path / name)
