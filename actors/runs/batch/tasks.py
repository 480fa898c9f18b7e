"""Reader of batch tasks: a CSV, JSON Lines or Excel file with one row for each task.

    id           its name in the results; the number of the row if no row has one
    task         the prompt
    attachments  a JSON list of files, relative to the tasks' file
    vars         a JSON object: the values that `--var` sets, for this task

All columns but `task` are optional, and so is `task` if there are attachments or vars. All errors are reported
together before a task runs: a batch that stops at row 800 has cost money.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import trio

from ....protocol.errors import InvalidFile, UsageError
from ....protocol.problems import Problem, did_you_mean

COLUMNS = ("id", "task", "attachments", "vars")
_SUFFIXES = (".csv", ".jsonl", ".xlsx")
_BOOK = "xl/workbook.xml"
_SHOWN = 20

Row = tuple[int, Mapping[str, Any]]
"""Line number of the start of a row, and its values by column."""


class BatchTask(msgspec.Struct, frozen=True, kw_only=True):
    """Task of a batch; `line` is its line in the file."""

    id: str
    prompt: str = ""
    attachments: tuple[str, ...] = ()
    vars: dict[str, str] = {}
    line: int = 0

    def digest(self, target: str) -> str:
        """Return a digest that identifies the task's contents and its target, to match stored results."""
        said = [target, self.prompt, self.attachments, sorted(self.vars.items())]
        return hashlib.sha256(json.dumps(said).encode("utf-8", "surrogatepass")).hexdigest()[:16]


async def read_tasks(path: Path) -> list[BatchTask]:
    """Return the tasks in the order of the file.

    Raises:
        UsageError: the file does not exist, or is of another kind.
        InvalidFile: it cannot be read, or has wrong rows; `problems` has all of them.
    """
    return await trio.to_thread.run_sync(_read, path)


def _read(path: Path) -> list[BatchTask]:
    if path.suffix.lower() not in _SUFFIXES:
        raise UsageError(f"{path}: tasks are read from {', '.join(_SUFFIXES)} files")
    if not path.is_file():
        raise UsageError(f"there is no file {path} with tasks")
    reader = _Reader(path)
    reader.read()
    if not reader.tasks and not reader.problems:
        reader.wrong(1, "no_tasks", "the file has no tasks", "a row for each task")
    refuse(path, reader.problems)
    return reader.tasks


def refuse(path: Path, problems: Sequence[Problem]) -> None:
    """Raise `InvalidFile` if there are problems."""
    if problems:
        shown = [str(problem) for problem in problems[:_SHOWN]]
        raise InvalidFile("\n".join([f"{len(problems)} error(s) in {path}:", *shown]), problems)


class _Reader:
    def __init__(self, path: Path) -> None:
        self.tasks: list[BatchTask] = []
        self.problems: list[Problem] = []
        self._path = path
        self._lines: dict[str, int] = {}

    def wrong(self, line: int, code: str, message: str, expected: str = "", hint: str | None = None) -> None:
        self.problems.append(
            Problem(
                code=code,
                message=message,
                file=str(self._path),
                line=line,
                column=1,
                severity="error",
                expected=expected,
                hint=hint,
            )
        )

    def read(self) -> None:
        kind = self._path.suffix.lower()
        if kind == ".xlsx":
            rows = self._table(self._sheet())
        else:
            try:
                # Excel's UTF-8 files begin with a byte order mark, which would be part of the first column's name.
                text = self._path.read_text(encoding="utf-8-sig")
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidFile(f"{self._path} can't be read: {error}") from error
            rows = self._table(text) if kind == ".csv" else self._objects(text)
        empty = 0
        for number, (line, row) in enumerate(rows, 1):
            if not any(_filled(value) for value in row.values()):
                empty = empty or line
                continue
            if empty:  # An empty row is an error only if another row follows; blank lines at the end are not rows.
                self.wrong(empty, "empty_row", "the row is empty", "a task, or no row")
                empty = 0
            self._task(number, line, row)

    def _task(self, number: int, line: int, row: Mapping[str, Any]) -> None:
        before = len(self.problems)
        id = row.get("id")
        name = str(number) if "id" not in row else str(id).strip() if isinstance(id, str | int) else ""
        if not name:
            self.wrong(line, "no_id", "the row has no id", "a text; without a column `id`, rows are numbered")
        elif name in self._lines:
            self.wrong(
                line, "duplicate_id", f"the id '{name}' is already used in line {self._lines[name]}", "another id"
            )
        self._lines.setdefault(name, line)
        prompt = row.get("task")
        if prompt is None:
            prompt = ""
        if not isinstance(prompt, str):
            self.wrong(line, "wrong_task", f"`task` is {prompt!r}", "a text")
        files = self._value("attachments", row, [])
        if not isinstance(files, list) or not all(isinstance(file, str) and file for file in files):
            self.wrong(line, "wrong_attachments", f"`attachments` is {files!r}", 'a JSON list: ["a.png", "b.pdf"]')
            files = []
        paths = [self._path.parent / Path(file).expanduser() for file in files]
        for path in paths:
            if not path.is_file():
                self.wrong(line, "no_attachment", f"there is no file {path} to attach", "a file")
        values = self._value("vars", row, {})
        if not isinstance(values, dict) or not all(isinstance(v, str | int | float) for v in values.values()):
            self.wrong(line, "wrong_vars", f"`vars` is {values!r}", 'a JSON object of texts: {"TONE": "dry"}')
            values = {}
        # JSON may contain a lone surrogate, which UTF-8 can't encode.
        for text in (name, str(prompt), *map(str, files), *map(str, values), *map(str, values.values())):
            if not _is_unicode(text):
                message = (
                    f"{text!r} contains an unpaired surrogate (half of a character), which "
                    "can't be sent to a model or written to a file"
                )
                self.wrong(line, "half_character", message, "whole characters")
        if len(self.problems) > before:
            return
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
        self.tasks.append(
            BatchTask(id=name, prompt=prompt, attachments=tuple(map(str, paths)), vars=texts, line=line),
        )

    def _value(self, key: str, row: Mapping[str, Any], nothing: Any) -> Any:
        """Return the value of a column, parsed as JSON if it is a text; `nothing` if it is empty."""
        value = row.get(key)
        if not _filled(value):
            return nothing
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        # The caller's type check refuses a text and shows it as it is in the file.
        except (ValueError, RecursionError):
            return value

    # --- kinds of files

    def _table(self, text: str) -> Iterator[Row]:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
        # The limit is global to the process, and the text is in memory anyway.
        before = csv.field_size_limit(max(len(text), csv.field_size_limit()))
        line = 1
        try:
            names = self._names(next(reader, []))
            while True:
                # Before the row is read: quoted fields may contain line breaks, and errors name the first line of the
                # row.
                line = reader.line_num + 1
                row = next(reader, None)
                if row is None:
                    return
                if len(row) > len(names) and any(row[len(names) :]):
                    self.wrong(
                        line,
                        "long_row",
                        f"the row has {len(row)} fields",
                        f"{len(names)} fields, as in the first row",
                    )
                yield line, {name: row[i] if i < len(row) else "" for i, name in enumerate(names)}
        except csv.Error as error:
            self.wrong(line, "no_csv", f"this row is not valid CSV: {error}")
        finally:
            csv.field_size_limit(before)

    def _names(self, row: list[str]) -> list[str]:
        names = [name.strip().lower() for name in row]
        for name in names:
            self._known(1, name)
        if len(set(names)) < len(names):
            self.wrong(1, "duplicate_column", "two columns have the same name", f"each of {', '.join(COLUMNS)} once")
        return names

    def _objects(self, text: str) -> Iterator[Row]:
        for line, each in enumerate(text.split("\n"), 1):
            if not each.strip():
                yield line, {}
                continue
            try:
                value = json.loads(each)
            except (ValueError, RecursionError) as error:
                self.wrong(line, "no_json", f"the line is not JSON: {error}", "an object per line")
                continue
            if not isinstance(value, dict):
                self.wrong(line, "no_object", f"the line is {type(value).__name__}", '{"id": "a", "task": "..."}')
                continue
            if not value:
                self.wrong(line, "empty_row", "the row is empty", "a task, or no row")
                continue
            row = {key.strip().lower(): item for key, item in value.items()}
            if not [key for key in row if not self._known(line, key)]:
                yield line, row

    def _known(self, line: int, name: str) -> bool:
        if name in COLUMNS:
            return True
        message = f"there is no column '{name}'"
        self.wrong(line, "unknown_column", message, f"one of {', '.join(COLUMNS)}", did_you_mean(name, COLUMNS))
        return False

    def _sheet(self) -> str:
        from ...work.knowledge.reading.limits import Bounds, CantRead, watch
        from ...work.knowledge.reading.office import Archive, sheets_of

        bounds = Bounds()
        try:
            archive = Archive(self._path.read_bytes(), bounds, watch(bounds.seconds))
            return next((text for _, text in sheets_of(archive, _BOOK, bounds.text)), "")
        except (OSError, CantRead) as error:
            raise InvalidFile(f"{self._path} can't be read: {error}") from error


def _delimiter(text: str) -> str:
    """Return the separator of columns in the first line: some spreadsheets write semicolons or tabs."""
    first = text.partition("\n")[0].lower()
    for each in ",;\t":
        if {name.strip(' "\r') for name in first.split(each)} & set(COLUMNS):
            return each
    return ","


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _filled(value: object) -> bool:
    return value is not None and value != "" and not (isinstance(value, str) and not value.strip())
