"""Parser for shell command lines with a positive grammar.

A permission rule may allow a line only if every effect of the line is known. The parser therefore accepts the listed
constructs and nothing else. Any other construct makes the line *not understood*: `ShellLine.unclear` names each one,
and the rules turn the line into a question.

Understood: simple commands of literal words, globs, braces, `$NAME`, `${NAME}`, `$?` and `~/`; `|`, `&&`, `||`, `;` and
newlines; comments; `N>&M`; redirections to literal targets; quotes, backslashes and continued lines; here-documents
with a quoted delimiter, or without `$`, backquotes and backslashes in them; assignments of `HARMLESS_VARIABLES` to
plain values; the wrappers of `shell_commands`.

Not understood, among others: command, process and arithmetic substitution, `${...}` with an operator, positional and
special parameters, `$'...'`, here-strings, other assignments, arrays, groups, loops, conditionals, functions, `&`, `!`,
`[[`, `((`, `|&`, redirections to a glob, a variable or a named descriptor, program names that only the shell knows,
control characters, and builtins that change how the shell reads later words (`eval`, `source`, `alias`, `trap`,
`export`, ...).

The parser continues after a construct that is not understood, as well as it can, because `deny` rules judge the
commands found there. A mistake in that part cannot lead to an allowed line, because the line is not understood already.

The grammar is the common part of bash 3.2 to 5, dash and zsh. The shell that runs the line is a parameter (`Shell`),
because some characters have another meaning in another shell: `&>` sends a command to the background in dash, and `=rm`
is a path in zsh. `execute_command` runs `bash -c`.

Words are texts in which each character that only the shell knows is *marked*: moved to a private plane of Unicode
(`mark`). `*.py` is two marked characters and three plain ones, so a pattern can be compared with the plain characters
alone.
"""

from __future__ import annotations

import posixpath
import re
from typing import Literal, TypeAlias

import msgspec

Shell: TypeAlias = Literal["bash", "sh", "zsh"]
"""The shell that runs a line. `sh` stands for every POSIX shell: dash, bash in POSIX mode, ksh."""

LONGEST = 20_000
"""Maximum characters of a line that is parsed."""

MOST = 500
"""Maximum commands in one line."""

HARMLESS_VARIABLES = frozenset(
    (
        *("CI", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES", "TERM", "TZ"),
        *("LANG", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME"),
        *("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUTF8", "PY_COLORS"),
        *("RUST_BACKTRACE", "CARGO_TERM_COLOR", "NODE_ENV", "DEBIAN_FRONTEND", "PIP_NO_INPUT"),
        *("PIP_DISABLE_PIP_VERSION_CHECK", "GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS", "TQDM_DISABLE"),
    )
)
"""Variables that a line may assign. No program runs their value, or takes it for the name of a file."""

_CHOSEN = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_EDITOR": "true", "EDITOR": "true"}
"""Variables that programs do run, with the one value that does nothing."""

_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_.,:@%+-]*")
# A Makefile may put a variable of the environment into a recipe, so no value contains a character of the shell.
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,2}")

_PATHS = frozenset(("HOME", "PWD", "OLDPWD", "TMPDIR", "USER", "LOGNAME"))
"""Variables whose values are paths or names, so that the shell never yields an option."""

_TOLD = re.compile(
    r"_|REPLY|OPTARG|MAPFILE|COPROC|PIPESTATUS|DIRSTACK|BASH.*|FUNC.*|ZSH_.*|argc_.*|LLM_.*|CALLBOARD_.*"
)
"""Variables that may contain text of the line itself: `$_` is the last word of the previous command."""

KEYWORDS = frozenset(
    (
        *("if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "select"),
        *("function", "{", "}", "!", "[[", "coproc"),
    )
)
_ZSH_KEYWORDS = frozenset(("repeat", "foreach", "end", "nocorrect", "noglob", "-", "always"))

CONTINUED = "a line continuation within a word"
r"""The shell joins the lines before it looks for `$(`, keywords and operators, so `$\<newline>(rm)` runs rm."""

HARMLESS_TARGETS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"))

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]]*\])?\+?=")
_DESCRIPTOR = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")
_DELIMITER = re.compile(r"[A-Za-z0-9_.!-]+")
_PLANE = 0xF0000
_MARKED = re.compile("[\U000f0000-\U000fffff]")
_PLAIN = frozenset("_-./,:=+@%^!#}")
"""Characters besides letters and digits that are literal outside of quotes."""

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|[0-7]{1,3}|.)", re.DOTALL)
_BLANKS = " \t"
_ENDS = frozenset(" \t\n;|&()<>")


def mark(text: str) -> str:
    """Return the text with each ASCII character replaced by a private one, which marks text that is only known when the
    shell runs.
    """
    return "".join(chr(_PLANE + ord(character)) for character in text)


def is_known(word: str) -> bool:
    """Return True if the word has no marked characters, so that its text is known before the shell runs."""
    return _MARKED.search(word) is None


def written(word: str) -> str:
    """Return the word with its marked characters as they are written in the line."""
    return word.translate(_UNMARK)


FILE = "\U000fff00"
"""Mark before a part of a word that stands for a path: it is unknown, and does not begin with `-`."""

_UNMARK: dict[int, int | None] = {_PLANE + code: code for code in range(0x80)}
_UNMARK[ord(FILE)] = None

MORE = mark("...")
"""Word that stands for any number of words that only another program knows (`xargs`)."""


def assignment_problem(text: str) -> str:
    """Return why an assignment is not one of the harmless ones, in words; "" if it is."""
    name, _, value = text.partition("=")
    if name in HARMLESS_VARIABLES:
        fits = _PLAIN_VALUE.fullmatch(value) or (name == "TZ" and _ZONE.fullmatch(value))
        return "" if fits else f"the value assigned to `{written(name)}`"
    if name in _CHOSEN and value in (_CHOSEN[name], ""):
        return ""
    return f"an assignment to the variable `{written(name)}`"


def _decoded(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "xu" and len(code) > 1:
        return chr(int(code[1:], 16))
    return chr(int(code, 8) & 0xFF) if code[0] in "01234567" else code


class CommandDraft:
    """A simple command under construction.

    Attributes:
        told: text of a here-document or here-string; known only after the command's line.
        moved: it runs after a `cd`.
    """

    def __init__(self) -> None:
        self.marked: list[str] = []
        self.assigned: list[str] = []
        self.writes: list[str] = []
        self.told: str | None = None
        self.moved = False


class ParsedCommands(msgspec.Struct, frozen=True, kw_only=True):
    """Commands of a line before their wrappers are parsed.

    Attributes:
        drafts: the simple commands in the order of the line.
        unclear: constructs that are not understood.
        broken: the end was not reached.
    """

    drafts: tuple[CommandDraft, ...] = ()
    unclear: tuple[str, ...] = ()
    broken: bool = False


def read(line: str, shell: Shell) -> ParsedCommands:
    """Parse a line into its simple commands, as `shell` does."""
    if len(line) > LONGEST:
        return ParsedCommands(unclear=(f"a line of more than {LONGEST} characters",), broken=True)
    reader = _Reader(line, shell)
    try:
        reader.read("")
        reader.end()
    except _Broken as broken:
        reader.note(str(broken))
        reader.broken = True
    except RecursionError:
        reader.note("constructs nested too deeply")
        reader.broken = True
    if len(reader.drafts) > MOST:
        reader.note(f"more than {MOST} commands")
        reader.broken = True
    return ParsedCommands(drafts=tuple(reader.drafts[:MOST]), unclear=tuple(reader.unclear), broken=reader.broken)


class _Broken(Exception):
    """The line ends within a construct."""


class _Heredoc(msgspec.Struct):
    draft: CommandDraft
    delimiter: str
    quoted: bool
    tabs: bool


class _Reader:
    def __init__(self, text: str, shell: Shell) -> None:
        self.text = text
        self.at = 0
        self.shell = shell
        self.drafts: list[CommandDraft] = []
        self.unclear: list[str] = []
        self.broken = False
        self._here: list[_Heredoc] = []
        self._moved = False
        odd = re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\U000e0000-\U0010ffff]", text)
        if odd is not None:
            self.note(f"the character U+{ord(odd[0]):04X}")
            # Marks must never come from the input: a forged one would pass for an unknown character.
            self.text = re.sub("[\U000f0000-\U000fffff\0]", "?", text)
        if re.search(r"[^\x00-\x7f]\\", text):
            # In the encodings GBK, Big5 and Shift-JIS a backslash may be the second byte of a character.
            self.note("a backslash after a letter that is not ASCII")

    def note(self, construct: str) -> None:
        if construct not in self.unclear:
            self.unclear.append(construct)

    def peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def end(self) -> None:
        if self._here:
            self.note("an unterminated here-document (`<<`)")

    # --- lists ---

    def read(self, closing: str) -> None:
        """Read commands up to `closing`, or to the end of the text."""
        # Groups are not understood, but counted: their `)` must not end the enclosing substitution.
        open_groups = 0
        complete, operator = False, ""
        while True:
            self._skip_blanks()
            two, one = self.peek(2), self.peek()
            if one == "":
                if closing:
                    raise _Broken("an unterminated command substitution")
                break
            if one == "#":
                self._skip_comment()
            elif one == "\n":
                self.at += 1
                # The bodies follow the next newline, in the order of their operators.
                self._read_heredocs()
                complete = False
            elif two in ("&&", "||") or (one == "|" and two != "|&"):
                if not complete:
                    self.note(f"`{two.strip()}` without a command before it")
                operator = two if two in ("&&", "||") else one
                self.at += len(operator)
                complete = False
            elif two in (";;", ";&", "|&"):
                self.note(f"`{two}`")
                self.at += 2
                complete = False
            elif one == ";":
                if not complete:
                    self.note("`;` without a command before it")
                self.at += 1
                complete = False
            elif one == "&" and two != "&>":
                self.note("`&` (a command in the background)")
                self.at += 1
                complete = False
            elif two == "((":
                self.note("arithmetic `((...))`")
                self._skip_arithmetic()
            elif two == "()":
                self.note("a function")
                self.at += 2
                complete = False
            elif one == "(":
                self.note("a group `(...)`, a function or an array")
                open_groups += 1
                self.at += 1
                complete = False
            elif one == ")":
                self.at += 1
                if closing == ")" and not open_groups:
                    return
                self.note("`)`")
                open_groups = max(0, open_groups - 1)
                complete = False
            else:
                if self._read_simple():
                    complete, operator = True, ""
                else:
                    complete = False
        if operator:
            self.note(f"`{operator}` without a command after it")

    def _skip_blanks(self) -> None:
        while True:
            if self.peek() != "" and self.peek() in _BLANKS:
                self.at += 1
            elif self.peek(2) == "\\\n":
                if self._here:
                    self.note("a here-document within a continued line")
                self.at += 2
            else:
                return

    def _skip_comment(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    # --- simple commands ---

    def _read_simple(self) -> bool:
        """Read one simple command; return False for a keyword, after which another command begins."""
        draft = CommandDraft()
        draft.moved = self._moved
        start = self.at
        seen = False
        while True:
            self._skip_blanks()
            one = self.peek()
            if one == "" or one in "\n;|()" or (one == "&" and self.peek(2) != "&>"):
                break
            if one == "#":
                self._skip_comment()
                break
            seen = True
            if (one in "<>" and self.peek(2) not in ("<(", ">(")) or self.peek(2) == "&>":
                self._read_redirection(draft)
                continue
            before = self.at
            word = self._read_word()
            raw = self.text[before : self.at]
            if self.peek() != "" and self.peek() in "<>" and self.peek(2) not in ("<(", ">("):
                # `2>file`: digits are a descriptor only directly before the operator.
                if raw.isascii() and raw.isdigit():
                    if len(raw) > 1 and self.shell != "bash":
                        self.note("a file descriptor of several digits, in a shell that is not bash")
                    self._read_redirection(draft)
                    continue
                if _DESCRIPTOR.fullmatch(raw):
                    self.note("a redirection to a named file descriptor")
                    self._read_redirection(draft)
                    continue
            if self.shell == "zsh" and raw.isdigit() and self.peek(2) == "&>":
                self.note("a file descriptor before `&>`, in zsh")
            if not draft.marked:
                assigned = _ASSIGNED.match(raw)
                if assigned is not None:
                    self._assign(draft, word, assigned[0])
                    continue
                # Compared with the raw text: a quoted keyword is an ordinary word.
                keyword = raw in KEYWORDS or (self.shell == "zsh" and raw in _ZSH_KEYWORDS)
                if keyword:
                    self.note(f"`{raw}`")
                    self._skip_keyword(raw)
                    return False
            draft.marked.append(word)
        if self.at == start:  # pragma: no cover - each caller has seen that a word begins here
            self.at += 1
        # A relative target after `cd` is in an unknown directory: `_read_redirection` prefixes it with `.../`.
        if draft.marked and draft.marked[0] in ("cd", "pushd", "popd"):
            self._moved = True
        if self.shell == "zsh" and not draft.marked and not draft.assigned:
            self.note("a redirection without a command, in zsh")
        self.drafts.append(draft)
        return seen

    def _assign(self, draft: CommandDraft, word: str, head: str) -> None:
        if self.peek() == "(":
            self.note("an array")
        problem = assignment_problem(word) if head.endswith("=") and "[" not in head and "+" not in head else ""
        if "[" in head or "+" in head:
            problem = f"an assignment `{head}`"
        if problem:
            self.note(problem)
        draft.assigned.append(word)

    def _skip_keyword(self, keyword: str) -> None:
        """Skip the words after a keyword that do not start a command."""
        if keyword == "[[":
            while self.peek() != "":
                self._skip_blanks()
                if self.peek() != "" and self.peek() in "&|()<>;\n":
                    self.at += 1
                    continue
                before = self.at
                if self.peek() == "" or (self._read_word() and self.text[before : self.at] == "]]"):
                    return
        elif keyword == "function":
            self._skip_blanks()
            if self.peek() not in _ENDS:
                self._read_word()
        elif keyword in ("for", "select", "case"):
            while True:
                self._skip_blanks()
                if self.peek() == "" or self.peek() in "\n;|&()<>":
                    return
                before = self.at
                self._read_word()
                if keyword == "case" and self.text[before : self.at] == "in":
                    return

    # --- redirections ---

    def _read_redirection(self, draft: CommandDraft) -> None:
        operator = next(
            each
            for each in ("&>>", "&>", "<<<", "<<-", "<<", ">>", ">|", ">&", "<&", "<>", ">", "<")
            if self.text.startswith(each, self.at)
        )
        self.at += len(operator)
        if operator in ("<<", "<<-"):
            self._begin_heredoc(draft, tabs=operator == "<<-")
            return
        self._skip_blanks()
        before = self.at
        if self.peek() == "" or (self.peek() in _ENDS and self.peek(2) not in ("<(", ">(")):
            self.note(f"`{operator}` without a target")
            return
        target = self._read_word()
        raw = self.text[before : self.at]
        if operator == "<<<":
            self.note("a here-string `<<<`")
            draft.told = written(target)
        elif operator in (">&", "<&"):
            if operator == "<&" or not (raw.isascii() and raw.isdigit()) or (len(raw) > 1 and self.shell != "bash"):
                self.note(f"`{operator}{raw[:20]}`")
                if operator == ">&" and raw != "-":
                    draft.writes.append(f"> {target}")
        elif not is_known(target):
            self.note(f"a redirection whose target is only known at run time (`{operator} {raw[:40]}`)")
            if operator != "<":
                draft.writes.append(f"> {target}")
        # bash opens a network connection for these names.
        elif target.startswith(("/dev/tcp", "/dev/udp")) or (self.shell == "zsh" and raw.startswith("!")):
            self.note(f"a redirection to `{raw[:40]}`")
        elif operator != "<":
            if operator.startswith("&") and self.shell == "sh":
                self.note(f"`{operator}` in a shell that is not bash")
            if target not in HARMLESS_TARGETS:
                # A pattern for `build/*` must not allow `build/../x`.
                plain = posixpath.normpath(target) if target else target
                moved = self._moved and not plain.startswith("/")
                # A relative target after `cd` is in an unknown directory, which the prefix `.../` represents.
                draft.writes.append(f"{'>>' if '>>' in operator else '>'} {'.../' if moved else ''}{plain}")

    def _begin_heredoc(self, draft: CommandDraft, *, tabs: bool) -> None:
        self._skip_blanks()
        before = self.at
        word = "" if self.peek() == "" or self.peek() in _ENDS else self._read_word()
        raw = self.text[before : self.at]
        if not _DELIMITER.fullmatch(word):
            self.note("the delimiter of a here-document")
            return
        self._here.append(_Heredoc(draft=draft, delimiter=word, quoted=raw != word, tabs=tabs))

    def _read_heredocs(self) -> None:
        pending, self._here = self._here, []
        for here in pending:
            lines = []
            while True:
                if self.at >= len(self.text):
                    self.note("an unterminated here-document (`<<`)")
                    break
                end = self.text.find("\n", self.at)
                stop = len(self.text) if end < 0 else end
                line = self.text[self.at : stop]
                self.at = min(stop + 1, len(self.text))
                line = line.lstrip("\t") if here.tabs else line
                if line == here.delimiter:
                    break
                lines.append(line)
            body = "\n".join(lines) + "\n"
            here.draft.told = body
            if not here.quoted and re.search(r"[$`\\]", body):
                self.note("a here-document with expansions (quote its delimiter)")
                self._read_substitutions(body)

    # --- words ---

    def _read_word(self) -> str:
        """Read one word and return it without its quotes, marked."""
        made: list[str] = []
        bare: list[str] = []
        brace = -1
        start = self.at
        while True:
            one = self.peek()
            if one == "" or one in _ENDS:
                if one != "" and one in "<>" and self.peek(2) in ("<(", ">("):
                    self.note("process substitution `<(...)`")
                    self.at += 2
                    self.read(")")
                    made.append(mark("<()"))
                    continue
                break
            self.at += 1
            bare.append("\0")
            if one == "\\":
                self._escaped(made)
            elif one == "'":
                made.append(self._up_to_quote())
            elif one == '"':
                self._double_quoted(made)
            elif one == "`":
                self._backquoted(made)
            elif one == "$":
                self._dollar(made, quoted=False)
            elif one == "~":
                self._tilde(made, start)
            elif one in "*?" or (one in "[]" and not self._stands_alone(start)):
                made.append(mark(one))
                bare[-1] = one
            elif one in "[]{" or one in _PLAIN or (one.isalnum() and self._is_one_character(one)):
                if one in "^#=" and self.shell != "bash":
                    self._of_other_shells(one, "".join(made))
                brace = len(made) if one == "{" and brace < 0 else brace
                made.append(one)
                bare[-1] = one
            else:
                self.note(f"the character `{one}` (U+{ord(one):04X}) outside of quotes")
                made.append(mark("?"))
        shape = "".join(bare)
        if brace >= 0 and ("," in shape or ".." in shape):
            expanded = written("".join(made[brace:]))
            if not expanded.isascii():
                self.note("brace expansion of letters that are not ASCII")
                expanded = "{}"
            made[brace:] = [mark(expanded)]  # Several words, all of which begin with the text before the brace.
        elif brace >= 0 and "\0" in shape and self.shell != "bash":
            self.note("quotes or a variable within braces, in a shell that is not bash")
        return "".join(made)

    def _stands_alone(self, start: int) -> bool:
        after = self.text[self.at : self.at + 1]
        return self.at - 1 == start and (after == "" or after in _ENDS)

    @staticmethod
    def _is_one_character(one: str) -> bool:
        """Return True for a character that every shell reads as one letter.

        Some shells on some systems treat the byte 0x85 or 0xA0 as a blank, even as a part of a UTF-8 letter.
        """
        return one.isascii() or not {0x85, 0xA0} & set(one.encode(errors="replace"))

    def _of_other_shells(self, one: str, before: str) -> None:
        # In zsh `=rm` is the path of rm, also after an empty variable.
        if one == "^" or (self.shell == "zsh" and (one == "#" or not before or not is_known(before))):
            self.note(f"`{one}` outside of quotes, in a shell that is not bash")

    def _escaped(self, made: list[str]) -> None:
        one = self.peek()
        if one == "":
            raise _Broken("a backslash at the end of the line")
        self.at += 1
        if one != "\n":
            made.append(one)
        else:
            self.note(CONTINUED)

    def _up_to_quote(self) -> str:
        end = self.text.find("'", self.at)
        if end < 0:
            raise _Broken("a quotation mark without its closing one")
        found = self.text[self.at : end]
        self.at = end + 1
        self._newlines_in(found)
        return found

    def _newlines_in(self, found: str) -> None:
        if self._here and "\n" in found:
            self.note("a here-document within a quoted text of several lines")

    def _double_quoted(self, made: list[str]) -> None:
        while True:
            one = self.peek()
            if one == "":
                raise _Broken("a quotation mark without its closing one")
            self.at += 1
            if one == '"':
                return
            if one == "\\" and self.peek() != "" and self.peek() in '$`"\\\n':
                if self.peek() != "\n":
                    made.append(self.peek())
                else:
                    self.note(CONTINUED)
                self.at += 1
            elif one == "`":
                self._backquoted(made)
            elif one == "$":
                self._dollar(made, quoted=True)
            else:
                self._newlines_in(one)
                made.append(one)

    def _backquoted(self, made: list[str]) -> None:
        self.note("command substitution (backquotes)")
        found = re.compile(r"((?:[^`\\]|\\.)*)`", re.DOTALL).match(self.text, self.at)
        if found is None:
            raise _Broken("a backquote without its closing one")
        self.at = found.end()
        made.append(mark("`...`"))
        self._nested(re.sub(r"\\([`\\$])", r"\1", found[1]))

    def _nested(self, text: str) -> None:
        """Read the commands in the text of a substitution."""
        inside = _Reader(text, self.shell)
        try:
            inside.read("")
        except _Broken:
            self.broken = True
        self.drafts += inside.drafts
        for each in inside.unclear:
            self.note(each)

    def _dollar(self, made: list[str], *, quoted: bool) -> None:
        one = self.peek()
        name = _NAME.match(self.text, self.at)
        braced = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}").match(self.text, self.at)
        if name is not None or braced is not None:
            found = name or braced
            assert found is not None
            self.at = found.end()
            self._variable(made, braced[1] if braced is not None else found[0], f"${found[0]}")
        elif one == "?":
            self.at += 1
            made.append(FILE + mark("$?"))
        elif one == "{":
            self.note("an expansion `${...}` that does more than name a variable")
            start = self.at
            self._skip_braces()
            made.append(mark("${...}"))
            self._read_substitutions(self.text[start : self.at])
        elif one == "(" and self.peek(2) == "((":
            self.note("arithmetic `$((...))`")
            self._skip_arithmetic()
            made.append(mark("$((...))"))
        elif one == "(":
            self.note("command substitution `$(...)`")
            self.at += 1
            made.append(mark("$(...)"))
            self.read(")")
        elif one == "[":
            self.note("arithmetic `$[...]`")
            made.append(mark("$["))
        elif one != "" and one in "@*#$!-0123456789":
            self.note(f"the parameter `${one}`")
            self.at += 1
            made.append(mark(f"${one}"))
        elif not quoted and one != "" and one in "'\"":
            self.note(f"a quotation with a dollar sign before it (`${one}...{one}`)")
            if one == "'":
                found = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL).match(self.text, self.at)
                if found is None:
                    raise _Broken("a quotation mark without its closing one")
                self.at = found.end()
                # Decoded for rules that deny; the line is not understood in any case.
                made.append(_ESCAPE.sub(_decoded, found[1]))
        else:
            if not one.isascii() or (self.shell == "zsh" and one != "" and one not in _ENDS and one != '"'):
                self.note(f"`${one}`, which may be an expansion")
            made.append("$")

    def _variable(self, made: list[str], name: str, text: str) -> None:
        if _TOLD.fullmatch(name) or name in HARMLESS_VARIABLES or name in _CHOSEN:
            self.note(f"the variable `{text}`, whose value the command may change")
        if self.shell == "zsh" and self.peek() != "" and self.peek() in "[:":
            self.note(f"`{text}{self.peek()}` in zsh")
        if self.peek(2) == "\\\n":
            self.note(CONTINUED)
        # In some locales the next character is a letter, and therefore a part of the name.
        if not self.peek().isascii():
            self.note(f"`{text}{self.peek()}`, which may be another variable")
        made.append((FILE if name in _PATHS else "") + mark(text))

    def _tilde(self, made: list[str], start: int) -> None:
        after = self.peek()
        first = self.at - 1 == start
        if first and (after == "" or after == "/" or after in _ENDS):
            made.append(FILE + mark("~"))
        elif first or self.text[self.at - 2] in "=:" or self.shell == "zsh":
            self.note("`~` that stands for a directory other than the home directory")
            made.append(mark("~"))
        else:
            made.append("~")

    # --- constructs that are skipped ---

    def _skip_braces(self) -> None:
        depth = 0
        while True:
            one = self.peek()
            if one == "":
                raise _Broken("an unterminated parameter expansion (`${`)")
            self.at += 2 if one == "\\" else 1
            depth += (one == "{") - (one == "}")
            if depth == 0:
                return

    def _skip_arithmetic(self) -> None:
        start, depth = self.at, 0
        while True:
            one = self.peek()
            if one == "":
                raise _Broken("an unterminated arithmetic expansion")
            self.at += 1
            depth += (one == "(") - (one == ")")
            if depth == 0:
                break
        self._read_substitutions(self.text[start + 2 : self.at])

    def _read_substitutions(self, text: str) -> None:
        """Read the commands of all substitutions within a text."""
        for found in re.finditer(r"\$\(|`", text):
            if found[0] == "`":
                end = text.find("`", found.end())
                self._nested(text[found.end() : end] if end >= 0 else "")
                continue
            depth = 0
            for end in range(found.start() + 1, len(text)):
                depth += (text[end] == "(") - (text[end] == ")")
                if depth == 0:
                    self._nested(text[found.end() : end])
                    break
