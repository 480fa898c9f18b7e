"""JSONC parser: JSON with comments and trailing commas, as a tree with line numbers.

The grammar is that of editors: `// to the end of the line`, `/* up to here */`, and an optional comma after the last
item. All else is JSON. A text is read up to its first error. A repeated key is not an error, because JSON does not
forbid it: the last one is effective, as in other programs that read these files, and a warning reports it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NoReturn, Unpack

import msgspec

from ..problems import Problem, Remedy, Severity
from ..tree import Entry, Mapping, Node, Scalar, Sequence, short

# The parser recurses, with two calls a level: 50 levels are far below Python's recursion limit of 1,000.
MAX_DEPTH = 50
"""Maximum nesting of objects and lists."""


def parse(text: str, file: str) -> tuple[Node | None, list[Problem]]:
    """Return the tree of a text, None after an error, and its problems. `file` is only used in problems."""
    parser = _Parser(text, file)
    try:
        return parser.whole(), parser.problems
    except _MistakeError:
        return None, parser.problems


_BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
# The last alternative matches a quote whose text has no end, which `unreadable` then reports.
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"/]+|.', re.DOTALL)


def behind_blanks(text: str, at: int) -> int:
    """Return the offset of the next word, after blanks and comments."""
    blank = _BLANK.match(text, at)
    assert blank is not None
    return blank.end()


def word_at(text: str, at: int) -> str:
    """Return the word at this offset: a bracket, a comma, a colon, a text in quotes, ...; empty at the end."""
    token = _TOKEN.match(text, at)
    return token[0] if token else ""


class _MistakeError(Exception):
    """Ends the parsing; the problem has been recorded already."""


class _Parser:
    """Parser of one text. `word` is the next word, empty at the end; `at` and `end` are its offsets."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.problems: list[Problem] = []
        self.lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self.at = self.end = 0
        self.word = ""

    def whole(self) -> Node:
        self.advance()
        if not self.word:
            self.mistake("empty_file", "the file is empty", expected='{"mcpServers": {...}}')
        node = self.value(0)
        if self.word:
            self.mistake("json_syntax", f"{self.found()} follows the end of the JSON value")
        return node

    def value(self, depth: int) -> Node:
        line, column = self.place(self.at)
        if depth > MAX_DEPTH:
            self.mistake("too_deep", f"lists and objects are nested deeper than {MAX_DEPTH} levels")
        if self.word == "{":
            return Mapping(self.entries(depth), line, column)
        if self.word == "[":
            return Sequence(self.items(depth), line, column)
        word = self.word
        value = self.scalar()
        return Scalar(value, value if isinstance(value, str) else word, line, column)

    def entries(self, depth: int) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        opened = self.at
        self.advance()
        while not self.closes("}", opened):
            at = self.at
            line, column = self.place(at)
            if self.word[0] != '"':
                self.mistake("json_syntax", f"{self.found()} is where a key should be", expected="a key in quotes")
            key = str(self.scalar())
            if self.word != ":":
                self.mistake("json_syntax", f"{self.found()} stands after the key {key!r}", expected="a colon")
            self.advance()
            if key in entries:
                self.report("warning", "duplicate_key", f"the key {key!r} occurs twice; the last value is used", at)
            entries[key] = Entry(self.value(depth + 1), line, column)
            self.separator("}", opened)
        return entries

    def items(self, depth: int) -> list[Node]:
        items: list[Node] = []
        opened = self.at
        self.advance()
        while not self.closes("]", opened):
            items.append(self.value(depth + 1))
            self.separator("]", opened)
        return items

    def closes(self, bracket: str, opened: int) -> bool:
        """Return whether the bracket is next, and skip it."""
        if not self.word:
            line, _ = self.place(opened)
            what = f"the `{self.text[opened]}` of line {line} is not closed"
            self.mistake("json_syntax", what, expected=f"a `{bracket}`")
        if self.word != bracket:
            return False
        self.advance()
        return True

    def separator(self, bracket: str, opened: int) -> None:
        if self.word == ",":
            self.advance()
        elif self.word and self.word != bracket:
            opener = self.text[opened]
            self.mistake(
                "json_syntax",
                f"{self.found()} stands after a value of the `{opener}` of line {self.place(opened)[0]}",
                expected=f"a comma, or a `{bracket}`",
            )

    def scalar(self) -> str | int | float | bool | None:
        """Return the next text, number or word, and skip it."""
        try:
            value: str | int | float | bool | None = msgspec.json.decode(self.word.encode())
        except (msgspec.MsgspecError, UnicodeEncodeError) as error:
            self.unreadable(error)
        self.advance()
        return value

    def advance(self) -> None:
        self.at = behind_blanks(self.text, self.end)
        self.word = word_at(self.text, self.at)
        self.end = self.at + len(self.word)
        # `_BLANK` skips only comments that are closed.
        if self.text.startswith("/*", self.at):
            self.mistake("json_syntax", "this comment is not closed", expected="a `*/`")

    # problems

    def unreadable(self, error: Exception) -> NoReturn:
        if self.word == '"':
            self.mistake("json_syntax", "this text is not closed on its line", expected='a closing `"`')
        if self.word.startswith('"'):
            why = str(error).removeprefix("JSON is malformed: ").partition(" (byte")[0]
            self.mistake("json_syntax", f"{self.found()} is not a valid JSON text: {why}")
        hint = {"True": "write true.", "False": "write false.", "None": "write null."}.get(self.word)
        expected = None if hint else 'text in double quotes, a number, true, false, null, a "[" or a "{"'
        self.mistake("json_syntax", f"{self.found()} is not a JSON value", expected=expected, hint=hint)

    def found(self) -> str:
        return f"`{short(self.word)}`" if self.word else "the end of the file"

    def mistake(self, code: str, message: str, **remedy: Unpack[Remedy]) -> NoReturn:
        self.report("error", code, message, self.at, **remedy)
        raise _MistakeError

    def report(self, severity: Severity, code: str, message: str, at: int, **remedy: Unpack[Remedy]) -> None:
        line, column = self.place(at)
        self.problems.append(
            Problem(severity=severity, file=self.file, line=line, column=column, code=code, message=message, **remedy)
        )

    def place(self, at: int) -> tuple[int, int]:
        line = bisect_right(self.lines, at)
        return line, at - self.lines[line - 1] + 1
