"""YAML files: a tree of values with positions, the text that it was read from, and front matter.

`parse` builds the tree (`tree`) from the events of a YAML parser. PyYAML's own loaders return values without positions,
and turn a bare `yes` into True. They accept duplicate keys, and run out of memory on a few hundred bytes of nested
aliases. So this module reads the parser's *events* (from the C parser if PyYAML has it) and builds its own small tree:

- scalars follow the YAML 1.2 core schema: only `true` and `false` are booleans; `yes`, `no`, `on` and `off`
  stay the text the user wrote; `010`, `1:30` and dates are text as well, as in Loki;
- anchors, aliases and merge keys (`<<`) work; the size of an alias is counted before it is copied;
- duplicate keys, keys that are not text, tags, several documents, too much depth or size are `Problem`s.

It does not recurse, does no I/O, and never raises because of the contents of a file.

`parse_mapping` is `parse` for files with a mapping at the top level. `Source` is the text of a file, from which a later
error can still name the line. `split_front_matter` splits a Markdown file such as a role or a skill: its front
matter is the YAML between two lines of dashes at its beginning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NoReturn, Unpack

import msgspec
import yaml

from .problems import Problem, Remedy, Severity
from .tree import Entry, Mapping, Node, Path, Scalar, Sequence, describe, dotted, short

MAX_DEPTH = 100
"""Deepest nesting of mappings and lists. Real files stay below 20."""

MAX_WEIGHT = 500_000
"""Most values of a file with its aliases copied, plus one per 32 characters of text."""


def parse(text: str, file: str) -> tuple[Node | None, list[Problem]]:
    """Return the tree of one YAML document, and all its problems.

    A duplicate or unusable key is reported and left out, so the rest can still be checked. A syntax error leaves no
    tree (None). `file` is only named in the problems.
    """
    builder = _Builder(file)
    try:
        return builder.build(text), builder.problems
    except _TabRefused:
        # libyaml refuses a block text whose first line begins with a tab behind its indentation (a Makefile's recipe),
        # which YAML 1.2 allows and PyYAML's own parser reads.
        slower = _Builder(file, yaml.Loader)
        try:
            return slower.build(text), slower.problems
        except _UnreadableError:
            return None, builder.problems
    except _UnreadableError:
        return None, builder.problems


_SYNTAX = "YAML parsing error: "
# Safe although these loaders can construct any object: only their events are used, and no constructor runs.
_Parser: type[Any] = yaml.CLoader if yaml.__with_libyaml__ else yaml.Loader


class _UnreadableError(Exception):
    """Signal to stop building; the problem is already in the list of problems."""


class _TabRefused(Exception):
    """Signal that the fast parser has met a tab where it accepts none."""


class _Open:
    """A mapping or list that has begun and not ended."""

    __slots__ = ("anchor", "column", "entries", "height", "items", "key", "line", "merges", "weight")

    def __init__(self, mark: Any, anchor: str | None, *, mapping: bool) -> None:
        self.line: int = mark.line + 1
        self.column: int = mark.column + 1
        self.anchor = anchor
        self.entries: dict[str, Entry] | None = {} if mapping else None
        self.items: list[Node] = []
        self.key: _Key | None = None
        self.merges: list[tuple[Node, _Key]] = []
        self.weight = 1
        self.height = 1


class _Anchored(msgspec.Struct, frozen=True):
    """The value of an anchor, for its aliases; `node` is None until the value has ended."""

    node: Node | None
    weight: int = 0
    height: int = 0


class _Key(msgspec.Struct, frozen=True):
    """A key that waits for its value; `name` is None if the value is to be dropped."""

    name: str | None
    line: int
    column: int


class _Builder:
    def __init__(self, file: str, parser: type[Any] = _Parser) -> None:
        self.file = file
        self.parser = parser
        self.problems: list[Problem] = []
        self.anchors: dict[str, _Anchored] = {}
        self.open: list[_Open] = []
        self.root: Node | None = None
        self.total = 0
        self.spanning: Any = None  # the last text in quotes that ends on another line than it began

    def build(self, text: str) -> Node:
        documents = 0
        for event in self._events(text):
            if isinstance(event, yaml.ScalarEvent):
                self._note_span(event)
                self._value(self._scalar(event), 1 + len(event.value) // 32, 0, event.anchor)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._begin(event)
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                self._end()
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._stop(
                        event.start_mark, "many_documents", "a second document starts here (`---`); a file contains one"
                    )
        if self.root is None or (isinstance(self.root, Scalar) and self.root.value is None):
            self._stop(None, "empty_file", "the file is empty")
        assert self.root is not None
        return self.root

    def _events(self, text: str) -> Iterator[Any]:
        """Yield the parser's events; report every parser error as a problem."""
        try:
            parser = self.parser(text)
        except (yaml.YAMLError, UnicodeError) as error:
            self._unreadable(text, error)
        try:
            while True:
                try:
                    event = parser.get_event()
                except (yaml.YAMLError, UnicodeError) as error:
                    self._unreadable(text, error)
                if event is None or isinstance(event, yaml.StreamEndEvent):
                    return
                yield event
        finally:
            parser.dispose()

    # values

    def _value(self, node: Node, weight: int, height: int, anchor: str | None = None) -> None:
        self.total += weight
        if self.total > MAX_WEIGHT:
            self._stop(node, "too_large", "the file is too large after its aliases are expanded")
        if anchor is not None:
            self.anchors[anchor] = _Anchored(node, weight, height)
        if not self.open:
            self.root = node
            return
        parent = self.open[-1]
        parent.weight += weight
        parent.height = max(parent.height, height + 1)
        if parent.entries is None:
            parent.items.append(node)
        elif parent.key is None:
            parent.key = self._key(parent, node)
        else:
            key, parent.key = parent.key, None
            if key.name == "<<":
                parent.merges.append((node, key))
            elif key.name is not None:
                parent.entries[key.name] = Entry(node, key.line, key.column)

    def _key(self, parent: _Open, node: Node) -> _Key:
        assert parent.entries is not None
        name: str | None = None
        if isinstance(node, Scalar) and isinstance(node.value, str):
            name = node.value
        elif isinstance(node, Scalar) and node.value is not None:
            name = node.text
            what = f"the key {node.text} is {_json_type(node.value)}, not text"
            self._report(node, "non_string_key", what, hint=f'put quotes around it: "{node.text}":')
        else:
            braces = isinstance(node, Mapping) and parent.line == node.line and parent.column == node.column - 1
            hint = 'a template needs quotes: "{{name}}".' if braces else ""
            self._report(node, "non_string_key", f"{describe(node)} can't be a key", hint=hint)
        if name is not None and name in parent.entries:
            what = f"duplicate entry with key '{name}'; the first is on line {parent.entries[name].line}"
            self._report(node, "duplicate_key", what, key=name)
            name = None
        return _Key(name, node.line, node.column)

    def _scalar(self, event: Any) -> Scalar:
        mark, text, tag = event.start_mark, event.value, event.tag
        line, column = mark.line + 1, mark.column + 1
        value: Any = text
        if tag is None or tag == "!":
            if event.implicit[0]:
                value = _plain_scalar(text)
        elif tag in _SCALAR_TAGS:
            value = _tagged(tag, text)
        else:
            self._unknown_tag(mark, tag)
        if isinstance(value, float) and not math.isfinite(value):
            self._report(mark, "bad_scalar", f"{short(text) or tag} is not a number that JSON can represent")
            value = text
        return Scalar(value, text, line, column, quoted=not event.implicit[0])

    # containers

    def _begin(self, event: Any) -> None:
        mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            self._unknown_tag(event.start_mark, event.tag)
        self._check_depth(event, 1)
        if event.anchor is not None:
            # Known before its value is complete: an alias in between would make a cycle, and is reported as one.
            self.anchors[event.anchor] = _Anchored(None)
        self.open.append(_Open(event.start_mark, event.anchor, mapping=mapping))

    def _end(self) -> None:
        done = self.open.pop()
        if done.entries is None:
            self._value_of_container(Sequence(done.items, done.line, done.column), done)
            return
        # At the end, because keys after `<<` take precedence over it as well.
        for node, key in done.merges:
            self._merge(done.entries, node, key)
        self._value_of_container(Mapping(done.entries, done.line, done.column), done)

    def _value_of_container(self, node: Node, done: _Open) -> None:
        # The parts were counted as they came; only the container itself is new.
        self.total -= done.weight - 1
        self._value(node, done.weight, done.height, done.anchor)

    def _check_depth(self, event: Any, height: int) -> None:
        if len(self.open) + height > MAX_DEPTH:
            self._stop(event.start_mark, "too_deep", f"mappings and lists are nested more than {MAX_DEPTH} deep")

    def _merge(self, entries: dict[str, Entry], node: Node, key: _Key) -> None:
        sources = node.items if isinstance(node, Sequence) else [node]
        for source in sources:
            if not isinstance(source, Mapping):
                place = Scalar(None, "", key.line, key.column)
                self._report(place, "bad_merge", f"`<<` is given {describe(source)}", key="<<")
                continue
            for name, entry in source.entries.items():
                # The mapping's own keys take precedence, and of several sources the earlier one (YAML's merge key
                # type).
                entries.setdefault(name, entry)

    def _alias(self, event: Any) -> None:
        anchored = self.anchors.get(event.anchor)
        if anchored is None or anchored.node is None:
            what = "is never defined" if anchored is None else "contains itself"
            self._stop(event.start_mark, "bad_alias", f"the alias *{event.anchor} {what}", name=event.anchor)
        assert anchored is not None
        assert anchored.node is not None
        self._check_depth(event, anchored.height)
        self._value(anchored.node, anchored.weight, anchored.height)

    # problems

    def _report(
        self, at: Any, code: str, message: str, *, hint: str = "", key: str | None = None, name: str = ""
    ) -> None:
        """Report a problem with its remedy from `_REMEDIES`; `name` is the anchor named in the remedy."""
        if at is None:
            line, column = 0, 0
        elif isinstance(at, Scalar | Sequence | Mapping):
            line, column = at.line, at.column
        else:
            line, column = at.line + 1, at.column + 1
        path = [step.key.name for step in self.open if step.key is not None and step.key.name is not None]
        if key is not None:
            path.append(key)
        expected, usual = _REMEDIES[code]
        hint = hint or usual
        self.problems.append(
            Problem(
                severity="error",
                file=self.file,
                line=line,
                column=column,
                code=code,
                message=_SYNTAX + message,
                key=".".join(path) or None,
                node=path[1] if len(path) > 1 and path[0] == "nodes" else None,
                expected=expected.replace("NAME", name),
                hint=f"Hint: {hint}" if hint else None,
            )
        )

    def _stop(self, at: Any, code: str, message: str, *, name: str = "") -> NoReturn:
        self._report(at, code, message, name=name)
        raise _UnreadableError

    def _unknown_tag(self, mark: Any, tag: str) -> None:
        shown = tag.replace("tag:yaml.org,2002:", "!!")
        self._report(mark, "unknown_tag", f"the tag {shown} is not known")

    def _unreadable(self, text: str, error: Exception) -> NoReturn:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        message = getattr(error, "problem", None) or str(error).splitlines()[0]
        hint = ""
        bad = _NOT_YAML.search(text)
        if bad is not None:
            before = text[: bad.start()]
            line, column = before.count("\n") + 1, bad.start() - before.rfind("\n")
            mark = Scalar(None, "", line, column)
            message = f"the character U+{ord(bad.group()):04X} is not allowed in YAML"
            hint = f'remove it, or write it as an escape in quotes: "\\u{ord(bad.group()):04x}".'
        elif (opened := self._open_quote(error)) is not None:
            quote = text.splitlines()[opened.line][opened.column : opened.column + 1]
            where = f"before line {mark.line + 1}" if mark is not None and mark.line > opened.line else "in its line"
            mark, message = opened, f"the text in quotes that begins here is not closed {where}"
            hint = f"close it where the text ends, with {quote}."
        elif mark is not None and "\t" in _indent(text, mark.line):
            self._report(
                mark, "yaml_syntax", "a tab is used where YAML requires spaces", hint="replace tabs by spaces."
            )
            raise _UnreadableError if self.parser is yaml.Loader else _TabRefused
        self._report(mark, "yaml_syntax", message, hint=hint)
        raise _UnreadableError

    def _note_span(self, event: Any) -> None:
        if event.style in _QUOTES and event.end_mark.line > event.start_mark.line:
            self.spanning = event

    def _open_quote(self, error: Exception) -> Any:
        """Return the position of an opening quote without a closing one, if it caused the parser's error.

        A missing quote is noticed late. The text extends to the next quote in the file, which was meant as an opening
        one, and the rest makes no sense.
        """
        at = getattr(error, "problem_mark", None)
        begun = None
        if (
            getattr(error, "context", None) == "while scanning a quoted scalar"
        ):  # the text extends to the end of the file
            at = begun = getattr(error, "context_mark", None)
        if self.spanning is not None and at is not None and self.spanning.end_mark.line == at.line:
            return self.spanning.start_mark
        return begun


_REMEDIES = {
    "many_documents": (
        "one document in the file",
        "remove the `---` line, or put what follows into a file of its own.",
    ),
    "empty_file": ("`key: value` lines", ""),
    "too_large": (f"at most {MAX_WEIGHT:,} values", "use fewer aliases (`*name`), or move data out of the file."),
    "non_string_key": ("a text as key", "write `key: value`."),
    "duplicate_key": ("every key once", "remove or rename one of the two."),
    "bad_scalar": ("a finite number", "put quotes around it if a text is meant."),
    "too_deep": (f"at most {MAX_DEPTH} levels", "flatten this part, or keep it in a file of its own."),
    "bad_merge": ("a mapping, or a list of mappings", "write `<<: *name`."),
    "bad_alias": ("an anchor &NAME that ends before this line", "copy the value instead."),
    "unknown_tag": ("a value without a tag", "remove the tag."),
    "yaml_syntax": (
        "valid YAML",
        "check the indentation, and put quotes around text that holds `: `, ` #`, `{`, `[` or `*`.",
    ),
}
"""For each code, the expectation and the usual remedy."""

_QUOTES = ("'", '"')
# The complement of `c-printable` (YAML 1.2, section 5.1).
_NOT_YAML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _indent(text: str, line: int) -> str:
    found = text.splitlines()[line : line + 1]
    return found[0][: len(found[0]) - len(found[0].lstrip())] if found else ""


# --- scalars ----------------------------------------------------------------------------------------------

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NUMBER_START = frozenset("0123456789+-.")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
# The core schema has no `0b`, and no sign before `0x` and `0o`. Loki's parser (serde_yaml) accepts both.
_BASED = re.compile(r"[-+]?0(?:x[0-9a-fA-F]+|o[0-7]+|b[01]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
_SCALAR_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null")}


def _plain_scalar(text: str) -> Any:
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if text[0] not in _NUMBER_START:
        return text
    if _INT.match(text):
        return _integer(text, 10)
    if _BASED.match(text):
        return _integer(text, 0)
    if _FLOAT.match(text):
        return float(text)
    if _NOT_FINITE.match(text):
        return math.nan if text[-1] in "nN" else math.inf
    return text


def _integer(text: str, base: int) -> int | float:
    """Return an int that fits into 64 bits, else the nearest float."""
    # Such a number is a float or infinite anyway. `int` needs quadratic time for its digits, and raises for more than
    # 4,300.
    if len(text) > 300:
        return float(text) if base == 10 else math.inf
    number = int(text, base)
    return number if -(2**63) <= number < 2**64 else float(number)


def _tagged(tag: str, text: str) -> Any:
    kind = tag.rpartition(":")[2]
    if kind == "str":
        return text
    value = _plain_scalar(text)
    if kind == "float" and type(value) is int:
        return float(value)
    fits = {
        "int": type(value) is int,
        "float": type(value) is float,
        "bool": type(value) is bool,
        "null": value is None,
    }
    return value if fits[kind] else math.nan  # NaN: reported by the caller as a value that does not fit


def _json_type(value: Any) -> str:
    return "a boolean" if isinstance(value, bool) else "a number"


class Source(msgspec.Struct, frozen=True):
    """Text of the file from which a struct was read, kept so that a later error can name the line.

    Only the text is kept, so a file without errors costs nothing. To find a position, the text is parsed again.
    """

    file: str = ""
    text: str = ""

    def where(self, path: Path, *, key: bool = False) -> tuple[int, int]:
        """Return line and column of the value at `path` (with `key`: of its key), or of the nearest parent that exists.

        The result is (0, 0) when there is no text.
        """
        node = _parsed(self.text)
        if node is None:
            return 0, 0
        place = (node.line, node.column)
        for depth, step in enumerate(path):
            if isinstance(node, Mapping) and step in node.entries:
                entry = node.entries[str(step)]
                node = entry.value
                last = depth == len(path) - 1
                place = (entry.line, entry.column) if key and last else (node.line, node.column)
            elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
                node = node.items[step]
                place = (node.line, node.column)
            else:
                break
        return place

    def problem(
        self,
        severity: Severity,
        code: str,
        message: str,
        path: Path = (),
        *,
        at_key: bool = False,
        node: str | None = None,
        **remedy: Unpack[Remedy],
    ) -> Problem:
        """Return a `Problem` about the value at `path` (with `at_key`: about its key)."""
        line, column = self.where(path, key=at_key)
        return Problem(
            severity=severity,
            file=self.file,
            line=line,
            column=column,
            code=code,
            message=message,
            node=node,
            key=dotted(path) or None,
            **remedy,
        )


def parse_mapping(text: str, file: str) -> tuple[Mapping | None, list[Problem]]:
    """Return the mapping at the top level of a file, and all problems; None for a syntax error or any other value."""
    node, problems = parse(text, file)
    if node is None or isinstance(node, Mapping):
        return node, problems
    problem = Problem(
        severity="error",
        file=file,
        line=node.line,
        column=node.column,
        code="not_a_mapping",
        message=f"YAML parsing error: the file holds {describe(node)}, not `key: value` lines",
        expected="a mapping at the top level",
        hint="Hint: the file should start with lines such as `name: my-agent`.",
    )
    return None, [*problems, problem]


@lru_cache(maxsize=8)
def _parsed(text: str) -> Node | None:
    return parse(text, "")[0] if text else None


_FENCE = re.compile(r"-{3,}[ \t]*")


class FrontMatter(msgspec.Struct, frozen=True, kw_only=True):
    """File split into front matter and body.

    Attributes:
        head: front matter without its dashes; "" for none.
        body: text after it.
        line: number of lines before `head`; that many empty lines before it preserve its line numbers.
        open: line of front matter without an end, in which case all is `body`; 0 if there is none.
    """

    head: str = ""
    body: str
    line: int = 0
    open: int = 0


def split_front_matter(text: str) -> FrontMatter:
    """Split a file. Only empty lines may precede the first dashes."""
    lines = text.splitlines(keepends=True)
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if not lines or not _FENCE.fullmatch(lines[first].rstrip("\r\n")):
        return FrontMatter(body=text)
    for number in range(first + 1, len(lines)):
        if _FENCE.fullmatch(lines[number].rstrip("\r\n")):
            return FrontMatter(
                head="".join(lines[first + 1 : number]), body="".join(lines[number + 1 :]), line=first + 1
            )
    return FrontMatter(body=text, open=first + 1)
