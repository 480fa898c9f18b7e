"""A line of shell as the simple commands in it: all that it may run, as far as that can be read from it.

    cd /srv && X=1 sudo -u bob rm -rf "$(cat list)" | xargs kill

is `cd /srv`, `X=1 sudo -u bob rm -rf ...`, inside of that `rm -rf ...`, `cat list`, `xargs kill`, inside of that
`kill`. Lists, pipes, groups, loops, functions, substitutions and here-documents that a shell reads are looked into, and
so are programs that run others: `sudo`, `env`, `xargs`, `find -exec`, `sh -c`, `eval` and their kin. Words are as the
shell makes them of quotes and backslashes. What only the shell will know (a variable, a pattern of files) is marked as
that.

What is no shell, ends within a quote, or is too long, is not read at all; nor is anything where the grammar
(tree-sitter-bash) is not installed. Who asks has to take that for "may do anything".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

LONGEST = 20_000
"""Characters of a line that is read."""

MOST = 500
"""Commands in it."""

DEEPEST = 6
"""Commands within the texts of others: `sh -c "sh -c ..."`."""

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash", "fish"))

_PREFIXES = {
    "sudo": "ugpCTUrtDRh",
    "doas": "uC",
    "env": "uC",
    "nohup": "",
    "nice": "n",
    "ionice": "cnp",
    "time": "fo",
    "command": "",
    "builtin": "",
    "exec": "a",
    "setsid": "",
    "stdbuf": "ioe",
    "timeout": "sk",
    "chroot": "",
    "unshare": "",
    "strace": "eopPsSXO",
    "xargs": "InPLdasE",
    "parallel": "jIN",
    "watch": "n",
    "busybox": "",
    "flock": "wE",
    "runuser": "ugG",
    "systemd-run": "pEu",
    "coproc": "",
}
"""Programs that run the command in their arguments, and their options of one letter that take a value."""

_ONE_BEFORE = frozenset(("timeout", "chroot", "flock"))
"""Those that take one argument before it."""

_FIND_RUNS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
_WRITES = frozenset((">", ">>", ">|", "&>", "&>>", "<>"))
_HARMLESS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"))
_GLOB = re.compile(r"[*?\[\]{}~]")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ANSI = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|.)", re.DOTALL)
_ANSI_NAMED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}


class Simple(msgspec.Struct, frozen=True, kw_only=True):
    """One simple command.

    Attributes:
        words: the program and its arguments; what only the shell will know stands as it is written.
        assigned: assignments before it.
        known: the program's name is known.
        writes: its output goes into a file.
        inner: what it runs in turn.
        opaque: it runs something that can't be read: a shell that reads its input, `eval` of a variable.
    """

    words: tuple[str, ...]
    assigned: tuple[str, ...] = ()
    known: bool = True
    writes: bool = False
    inner: tuple[Simple, ...] = ()
    opaque: bool = False

    @property
    def text(self) -> str:
        """The command in one line, with single blanks."""
        return " ".join(self.words)

    @property
    def whole(self) -> str:
        """The same with its assignments."""
        return " ".join((*self.assigned, *self.words))

    @property
    def program(self) -> str:
        """The program's name, without directories."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def texts(self) -> tuple[str, ...]:
        """What a rule that forbids may mean by it: as it is, with its assignments, without its program's directory.

        Of a program that runs others also every end of its arguments, since not all of their options are known here.
        """
        bare = " ".join((self.program, *self.words[1:]))
        ends: tuple[str, ...] = ()
        if self.program in _PREFIXES:
            ends = tuple(" ".join(self.words[start:]) for start in range(1, min(len(self.words), 30)))
        return tuple(dict.fromkeys((self.text, self.whole, bare, *ends)))

    def all(self) -> Iterator[Simple]:
        """It and all that it runs."""
        yield self
        for each in self.inner:
            yield from each.all()


@lru_cache(maxsize=256)
def commands_of(line: str) -> tuple[Simple, ...] | None:
    """The simple commands of a line, in the order in which they stand there; None if it can't be read."""
    return _commands(line, 0)


def can_read() -> bool:
    """Whether the grammar is installed."""
    return _parser() is not None


def _commands(line: str, depth: int) -> tuple[Simple, ...] | None:
    parser = _parser()
    if parser is None or len(line) > LONGEST or depth > DEEPEST or "\0" in line:
        return None
    try:
        root = parser.parse(line.encode()).root_node
    except UnicodeEncodeError:
        return None
    if root.has_error:
        return None
    found: list[Simple] = []
    todo = [root]
    while todo:
        node = todo.pop()
        if node.type in ("command", "declaration_command", "unset_command", "test_command"):
            simple = _simple(node, depth)
            if simple is None or len(found) >= MOST:
                return None
            found.append(simple)
        elif node.type == "redirected_statement" and node.child_by_field_name("body") is None:
            found.append(Simple(words=(), writes=_writes(node)))  # `> file` alone empties it
        todo += reversed(node.children)
    return tuple(found)


@cache
def _parser() -> Parser | None:
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError:  # pragma: no cover - it is installed with us, where there are wheels
        return None
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


# --- one command ------------------------------------------------------------------------------------------


def _simple(node: Node, depth: int) -> Simple | None:
    words: list[str] = []
    assigned: list[str] = []
    known = True
    if node.type != "command":
        words = _text(node).split()
        words[:1] = ["test"] if node.type == "test_command" else words[:1]
    for child in node.named_children if node.type == "command" else ():
        if child.type == "variable_assignment":
            assigned.append(_text(child))
        elif child.type == "command_name":
            name, known = _word(child.named_children[0] if child.named_children else child)
            words.append(name)
        elif child.type not in ("file_redirect", "herestring_redirect", "heredoc_redirect", "comment"):
            words.append(_word(child)[0])
    outer = node.parent
    redirected = outer if outer is not None and outer.type == "redirected_statement" else None
    simple = Simple(
        words=tuple(words),
        assigned=tuple(assigned),
        known=known,
        writes=_writes(node) or (redirected is not None and _writes(redirected)),
    )
    told = _heredoc(node) if redirected is None else _heredoc(redirected) or _heredoc(node)
    inner, opaque = _run_by(simple, told, _piped(node), depth)
    return msgspec.structs.replace(simple, inner=inner, opaque=opaque)


def _word(node: Node) -> tuple[str, bool]:
    """A word as the shell makes it, and whether that is known."""
    text = _text(node)
    match node.type:
        case "raw_string":
            return text[1:-1], True
        case "ansi_c_string":
            return _ANSI.sub(_decoded, text[2:-1]), True
        case "string" | "translated_string":
            parts = [_word(child) for child in node.named_children]
            if any(child.type != "string_content" for child in node.named_children):
                return text.strip('"'), False
            whole = "".join(_text(child) for child in node.named_children) if parts else ""
            return re.sub(r'\\([$`"\\\n])', r"\1", whole), True
        case "concatenation":
            parts = [_word(child) for child in node.children]
            return "".join(part for part, _ in parts), all(known for _, known in parts)
        case "word" | "number" | "special_variable_name":
            bare = _ESCAPED.sub(lambda found: "" if found[1] == "\n" else found[1], text)
            return bare, not _GLOB.search(_ESCAPED.sub("", text))
        case _:
            return text, False


def _decoded(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "xuU" and len(code) > 1:
        return chr(min(int(code[1:], 16), 0x10FFFF))
    if code[0] in "01234567":
        return chr(int(code, 8) & 0xFF)
    return _ANSI_NAMED.get(code, code)


def _writes(node: Node) -> bool:
    """Whether one of a node's redirections writes into a file."""
    for child in node.children:
        if child.type != "file_redirect" or not any(part.type in _WRITES for part in child.children):
            continue
        target = child.child_by_field_name("destination")
        if target is None or _word(target)[0] not in _HARMLESS:
            return True
    return False


def _heredoc(node: Node) -> str | None:
    for child in node.children:
        if child.type == "heredoc_redirect":
            body = next((part for part in child.children if part.type == "heredoc_body"), None)
            return "" if body is None else _text(body)
        if child.type == "herestring_redirect":
            return _word(child.named_children[-1])[0]
    return None


def _piped(node: Node) -> bool:
    """Whether a command reads what another one writes."""
    here: Node | None = node
    while here is not None and here.parent is not None:
        if here.parent.type == "pipeline" and here.parent.named_children[0] != here:
            return True
        if here.parent.type not in ("redirected_statement", "pipeline", "negated_command"):
            return False
        here = here.parent
    return False


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


# --- what it runs -----------------------------------------------------------------------------------------


def _run_by(command: Simple, told: str | None, piped: bool, depth: int) -> tuple[tuple[Simple, ...], bool]:
    """What a command runs in turn, and whether it runs something that can't be read.

    Args:
        told: the text that it has as its input; piped: it reads what another command writes.
    """
    words, program = command.words, command.program
    if program in SHELLS:
        return _run_by_shell(words, told, piped, depth)
    if program == "eval":
        return _read(" ".join(words[1:]), depth)
    if program in ("su", "script") and "-c" in words[:-1]:
        return _read(words[words.index("-c") + 1], depth)
    if program == "ssh":
        return (), len(words) > 2
    if program == "find":
        return tuple(_run_by_find(words, depth)), False
    if program == "env" and (split := _split_by_env(words)) is not None:
        return _read(split, depth)
    if program in _PREFIXES:
        rest = _behind_options(words, program)
        if rest:
            return (_made(rest, depth),), False
    return (), False


def _run_by_shell(words: Sequence[str], told: str | None, piped: bool, depth: int) -> tuple[tuple[Simple, ...], bool]:
    for place, word in enumerate(words[1:], 1):
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word):
            return _read(words[place + 1], depth) if place + 1 < len(words) else ((), True)
        if not word.startswith("-") or word == "-":
            return (), word == "-"  # a script, which is a file: what is in it is not judged here
    if told is not None:
        return _read(told, depth)
    return (), piped or len(words) == 1


def _read(text: str, depth: int) -> tuple[tuple[Simple, ...], bool]:
    found = _commands(text, depth + 1)
    return ((), True) if found is None else (found, False)


def _run_by_find(words: Sequence[str], depth: int) -> Iterator[Simple]:
    for place, word in enumerate(words):
        if word in _FIND_RUNS:
            rest = list(words[place + 1 :])
            ends = [number for number, each in enumerate(rest) if each in (";", "+")]
            yield _made(rest[: ends[0]] if ends else rest, depth)


def _made(words: Sequence[str], depth: int) -> Simple:
    """A command of words that are its own already."""
    at = next((number for number, word in enumerate(words) if not re.match(r"[A-Za-z_]\w*=", word)), len(words))
    known = at < len(words) and not re.search(r"[$`*?\[{]", words[at])
    simple = Simple(words=tuple(words[at:]), assigned=tuple(words[:at]), known=known)
    if depth > DEEPEST:
        return msgspec.structs.replace(simple, opaque=True)
    inner, opaque = _run_by(simple, None, False, depth + 1)
    return msgspec.structs.replace(simple, inner=inner, opaque=opaque)


def _split_by_env(words: Sequence[str]) -> str | None:
    """What `env -S` splits and runs."""
    for place, word in enumerate(words[1:], 1):
        if word in ("-S", "--split-string"):
            return " ".join(words[place + 1 :])
        if word.startswith(("-S", "--split-string=")):
            return " ".join((word.removeprefix("--split-string=").removeprefix("-S"), *words[place + 1 :]))
        if not word.startswith("-") and "=" not in word:
            return None
    return None


def _behind_options(words: Sequence[str], program: str) -> list[str]:
    """The command that a program is given, behind its options."""
    valued = _PREFIXES[program]
    place = 1
    before = 1 if program in _ONE_BEFORE else 0
    while place < len(words):
        word = words[place]
        if word == "--":
            place += 1
            break
        if word.startswith("-") and len(word) > 1:
            place += 2 if not word.startswith("--") and len(word) == 2 and word[1] in valued else 1
        elif before and not re.match(r"[A-Za-z_]\w*=", word):
            before -= 1
            place += 1
        else:
            break
    return list(words[place:])
