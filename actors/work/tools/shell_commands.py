"""Commands of a command line, and the commands that wrappers among them run.

`parse` returns the simple commands that `shell_parser` reads, each with the commands that it runs in turn.

For each program in `_GRAMMARS`, for the shells with `-c`, `xargs` and `find`, all understood options are listed. A
command with any other option is not understood (`SimpleCommand.unclear`): that option could take the next word as its
value, and so change which word is the program. Abbreviations of long options are not understood either.

Programs that are known to run their arguments, but are not modelled, are never understood (`_UNMODELLED`). For an
unknown program the rules decide: `allow: "uv run *"` covers everything that `uv run` runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from .shell_parser import FILE, KEYWORDS, MORE, CommandDraft, Shell, assignment_problem, is_known, mark, read, written

DEEPEST = 6
"""Lines within lines: `sh -c "sh -c ..."`."""

_SHELLS: dict[str, Shell] = {"bash": "bash", "sh": "sh", "dash": "sh", "zsh": "zsh"}

WRAPPERS = (
    *("sh", "bash", "dash", "zsh", "env", "timeout", "nice", "nohup", "time", "command", "exec", "sudo", "xargs"),
    "find -exec",
)
"""Programs that run a command and are understood."""

_STANDARD = ("/bin", "/usr/bin")
"""Directories whose programs are trusted to be the wrapper of that name. `./bash -c ls` runs anything."""

_FLAGS = {"bash": frozenset("euxvfCbhmETBl"), "sh": frozenset("euxvfCl"), "zsh": frozenset("euxvfl")}
"""Single-letter shell options that do not change how a line is read.

`-i` reads startup files and expands aliases, `-s` reads the input, `-k` makes assignments of arguments; in zsh `-b`
ends the options.
"""

_NAMED_FLAGS = frozenset(("errexit", "nounset", "xtrace", "verbose", "noglob", "noclobber", "pipefail", "errtrace"))
_SHOPT = frozenset(
    ("extglob", "globstar", "nullglob", "dotglob", "nocaseglob", "failglob", "inherit_errexit", "lastpipe")
)
_LONG_FLAGS = frozenset(("--login", "--norc", "--noprofile", "--verbose", "--noediting"))


class _Grammar(msgspec.Struct, frozen=True, kw_only=True):
    """Grammar of the options before a command.

    Attributes:
        flags, valued: letters without and with a value.
        long, long_valued: long names without and with a value.
        operand: pattern of one argument between the options and the command.
        assigns: assignments of variables precede the command.
        transparent: the program has only the effects of the command.
    """

    flags: str = ""
    valued: str = ""
    long: tuple[str, ...] = ()
    long_valued: tuple[str, ...] = ()
    operand: str = ""
    assigns: bool = False
    transparent: bool = True


_GRAMMARS = {
    "timeout": _Grammar(
        flags="v",
        valued="sk",
        long=("--foreground", "--preserve-status", "--verbose"),
        long_valued=("--signal", "--kill-after"),
        operand=r"\d+(?:\.\d+)?[smhd]?",
    ),
    "nice": _Grammar(flags="0123456789", valued="n", long_valued=("--adjustment",)),
    "nohup": _Grammar(),
    "time": _Grammar(flags="p"),
    "command": _Grammar(flags="p"),
    "exec": _Grammar(flags="cl", valued="a"),
    "env": _Grammar(flags="i", valued="u", long=("--ignore-environment",), long_valued=("--unset",), assigns=True),
    "sudo": _Grammar(
        flags="nEHSkb",
        valued="ugp",
        long=("--non-interactive", "--preserve-env", "--set-home", "--stdin", "--background", "--reset-timestamp"),
        long_valued=("--user", "--group", "--prompt"),
        assigns=True,
        transparent=False,
    ),
    "xargs": _Grammar(
        flags="0rtx",
        valued="nPLsIdEa",
        long=("--null", "--no-run-if-empty", "--verbose", "--exit"),
        long_valued=("--max-args", "--max-procs", "--max-lines", "--max-chars", "--delimiter", "--arg-file"),
    ),
}

_UNMODELLED = frozenset(
    (
        *(
            "rbash",
            "ksh",
            "ksh93",
            "mksh",
            "pdksh",
            "ash",
            "yash",
            "fish",
            "csh",
            "tcsh",
            "pwsh",
            "nu",
            "elvish",
            "xonsh",
        ),
        *("busybox", "toybox", "doas", "su", "runuser", "pkexec", "setsid", "stdbuf", "ionice", "chrt", "taskset"),
        *("numactl", "prlimit", "setpriv", "setarch", "linux32", "linux64", "capsh", "chroot", "unshare", "nsenter"),
        *("bwrap", "firejail", "proot", "fakeroot", "strace", "ltrace", "valgrind", "parallel", "watch", "flock"),
        *("systemd-run", "script", "expect", "unbuffer", "xvfb-run", "dbus-run-session", "entr", "at", "batch"),
        *("crontab", "gdb", "start-stop-daemon", "daemonize", "screen", "tmux", "caffeinate", "arch", "sem", "chpst"),
    )
)
"""Programs that run their arguments or their input."""

_BUILTINS = frozenset(
    (
        *(".", "source", "eval", "builtin", "trap", "alias", "unalias", "export", "declare", "typeset", "local"),
        *("readonly", "read", "readarray", "mapfile", "let", "unset", "shopt", "enable", "hash", "getopts", "fc"),
        *("history", "complete", "compgen", "compopt", "bind", "coproc", "shift", "return", "logout", "suspend"),
        *(
            "popd",
            "pushd",
            "dirs",
            "print",
            "autoload",
            "zmodload",
            "emulate",
            "setopt",
            "unsetopt",
            "float",
            "integer",
        ),
        *("bg", "fg", "jobs", "disown", "wait", "umask", "ulimit", "break", "continue", "vared", "zle", "sched"),
    )
)
"""Builtins that change how the shell reads the following words, or run their arguments."""

_EVALUATING = frozenset(("printf", "exit", "kill"))
"""Builtins that evaluate an argument as arithmetic in zsh and ksh, and so run the command in `a[$(rm x)]`."""

_FIND_RUNS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
_FIND_PLAIN = frozenset(
    (
        *("!", "(", ")", ",", "-not", "-a", "-and", "-o", "-or", "-true", "-false", "-depth", "-d", "-xdev", "-mount"),
        *("-print", "-print0", "-ls", "-prune", "-quit", "-empty", "-readable", "-writable", "-executable", "-nouser"),
        *("-nogroup", "-daystart", "-follow", "-noleaf", "-ignore_readdir_race", "-H", "-L", "-P", "-delete", "-E"),
    )
)
_FIND_VALUED = dict.fromkeys(
    (
        *("-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex", "-lname", "-ilname"),
        *("-type", "-xtype", "-size", "-mtime", "-mmin", "-atime", "-amin", "-ctime", "-cmin", "-newer", "-anewer"),
        *("-cnewer", "-newermt", "-newerct", "-newerat", "-perm", "-user", "-group", "-uid", "-gid", "-links", "-inum"),
        *("-samefile", "-maxdepth", "-mindepth", "-regextype", "-fstype", "-used", "-printf", "-fprint", "-fprint0"),
        *("-fls",),
    ),
    1,
) | {"-fprintf": 2}
"""Primaries of `find` with values, and the number of values of each."""


class SimpleCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A simple command.

    Attributes:
        marked: the program and its arguments, see `mark`.
        assigned: assignments before it.
        writes: redirections that write: `> file`, `>> file`.
        inner: commands that it runs in turn.
        unclear: the construct that hides the command's effect; "" if the command is understood.
        transparent: it has only the effects of `inner`.
    """

    marked: tuple[str, ...]
    assigned: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    inner: tuple[SimpleCommand, ...] = ()
    unclear: str = ""
    transparent: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The program and its arguments without quotes; parts that are only known when the shell runs are as written in
        the line.
        """
        return tuple(written(word) for word in self.marked)

    @property
    def text(self) -> str:
        """The command in one line, with single blanks."""
        return " ".join(self.words)

    @property
    def program(self) -> str:
        """The program's name without directories."""
        return self.words[0].rpartition("/")[2] if self.marked else ""

    @property
    def known(self) -> bool:
        """True if the program's name is known."""
        return not self.marked or is_known(self.marked[0])

    @property
    def opaque(self) -> bool:
        """True if it runs code or commands that can't be determined from the line."""
        return bool(self.unclear)

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts that a pattern is compared with: as written, with its assignments, without the directory of its
        program, with that program in lower case, and for `git` without the options before its subcommand.
        """
        return tuple(dict.fromkeys(written(text) for text in self.forms()))

    def forms(self) -> Iterator[str]:
        """Yield the texts of `texts` with their marks; see `mark`. Some may be equal."""
        if not self.marked:
            return
        program = self.marked[0].rpartition("/")[2]
        rest = self.marked[1:]
        yield " ".join(self.marked)
        if self.assigned:
            yield " ".join((*self.assigned, *self.marked))
        yield " ".join((program, *rest))
        if program != program.casefold():  # A file system that ignores case runs the same program.
            yield " ".join((program.casefold(), *rest))
        if program == "git":
            while rest and rest[0].startswith("-"):
                rest = rest[2:] if rest[0] in ("-C", "-c", "--git-dir", "--work-tree", "--namespace") else rest[1:]
            yield " ".join((program, *rest))

    def all(self) -> Iterator[SimpleCommand]:
        """Yield the command and all that it runs."""
        yield self
        for each in self.inner:
            yield from each.all()


class ShellLine(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed line.

    Attributes:
        commands: its simple commands in the order of the line.
        unclear: constructs that are not understood; the line is understood if there are none.
        broken: the end was not reached: an open quote, too long, too deep. `commands` is then incomplete.
    """

    commands: tuple[SimpleCommand, ...] = ()
    unclear: tuple[str, ...] = ()
    broken: bool = False


@lru_cache(maxsize=256)
def parse(line: str, shell: Shell = "bash", depth: int = 0) -> ShellLine:
    """Parse a line as `shell` runs it. `depth` is the number of command lines around it, such as `sh -c "..."`."""
    if depth > DEEPEST:
        return ShellLine(unclear=(f"more than {DEEPEST} nested shells",), broken=True)
    found = read(line, shell)
    commands = tuple(_finish(draft, shell, depth) for draft in found.drafts)
    unclear = [*found.unclear, *(part.unclear for each in commands for part in each.all() if part.unclear)]
    return ShellLine(commands=commands, unclear=tuple(dict.fromkeys(unclear)), broken=found.broken)


def _finish(draft: CommandDraft, shell: Shell, depth: int) -> SimpleCommand:
    """Return a parsed command with the commands that it runs."""
    found = _finished(tuple(draft.marked), tuple(draft.assigned), tuple(draft.writes), shell, depth, draft.told)
    return _in_other_directory(found) if draft.moved else found


def _in_other_directory(simple: SimpleCommand) -> SimpleCommand:
    """Return a command whose inner commands run in another directory: relative targets get the prefix `.../`."""
    inner = tuple(_in_other_directory(_redirected(each)) for each in simple.inner)
    return msgspec.structs.replace(simple, inner=inner) if inner else simple


def _redirected(simple: SimpleCommand) -> SimpleCommand:
    writes = tuple(re.sub(r"^(>>?) (?!/|\.\.\./)", r"\1 .../", each) for each in simple.writes)
    return msgspec.structs.replace(simple, writes=writes)


def _finished(
    marked: tuple[str, ...],
    assigned: tuple[str, ...],
    writes: tuple[str, ...],
    shell: Shell,
    depth: int,
    told: str | None = None,
) -> SimpleCommand:
    simple = SimpleCommand(marked=marked, assigned=assigned, writes=writes)
    if not marked:
        return simple
    if depth > DEEPEST:
        return msgspec.structs.replace(simple, unclear="commands nested too deeply")
    if not simple.known:
        return msgspec.structs.replace(
            simple, unclear=f"a program name that is only known at run time (`{simple.words[0]}`)"
        )
    name = simple.words[0]
    if not name or re.search(r"[\s=]", name) or name in KEYWORDS:
        return msgspec.structs.replace(simple, unclear=f"a program with the name `{name}`")
    try:
        return _run_by(simple, shell, depth)
    except _Unclear as unclear:
        found = msgspec.structs.replace(simple, unclear=str(unclear))
        return msgspec.structs.replace(found, inner=tuple(_guessed(found, told, shell, depth)))


class _Unclear(Exception):
    """A command is not understood; the text names the construct."""


def _run_by(simple: SimpleCommand, shell: Shell, depth: int) -> SimpleCommand:
    program, marked = simple.program, simple.marked
    directory, slash, _ = simple.words[0].rpartition("/")
    known_here = not slash
    modelled = program in _SHELLS or program in _GRAMMARS or program == "find"
    # `./timeout` may be any program, so the grammar of `timeout` does not apply.
    if modelled and slash and directory not in _STANDARD:
        raise _Unclear(f"`{simple.words[0]}`, a program with the name of `{program}`")
    # With a slash in it, the name would be a file and not the builtin.
    if known_here and program in _BUILTINS:
        raise _Unclear(f"the builtin `{program}`")
    if program in _UNMODELLED:
        raise _Unclear(f"`{program}`, which can run commands that can't be determined")
    testing = program in ("test", "[")
    if (testing or (program in _EVALUATING and shell != "bash")) and any(map(_evaluated, marked[1:])):
        raise _Unclear(f"an argument of `{program}` that may be evaluated as shell code")
    if known_here and program == "set":
        _check_set(marked)
        return simple
    if testing and any(word in ("-v", "-R") for word in marked[1:]):
        raise _Unclear(f"`{program} -v`, which may evaluate its argument")
    if (
        known_here
        and program == "printf"
        and len(marked) > 1
        and (marked[1].startswith("-") or not _is_word(marked[1]))
    ):
        raise _Unclear("`printf` with an option")
    if program in _SHELLS:
        return _shell(simple, _SHELLS[program], depth)
    if program == "find":
        inner = tuple(_run_by_find(marked, shell, depth))
        return msgspec.structs.replace(simple, inner=inner)
    if program in _GRAMMARS:
        return _behind_options(simple, _GRAMMARS[program], shell, depth)
    return simple


def _evaluated(word: str) -> bool:
    """Return True for a text in which a shell finds a substitution if it takes the text for arithmetic."""
    return re.search(r"\$[({]|`", word) is not None


def _is_word(word: str) -> bool:
    """Return True if a word cannot turn out to be an option."""
    return is_known(word[:1]) or word.startswith(FILE)


def _check_set(marked: Sequence[str]) -> None:
    words = list(marked[1:])
    while words:
        word = words.pop(0)
        letters = word[1:]
        if word[:1] not in ("-", "+") or not letters or not set(letters) <= (_FLAGS["sh"] - {"l"}) | {"o"}:
            raise _Unclear(f"`set {written(word)}`")
        if "o" in letters and (not words or words.pop(0) not in _NAMED_FLAGS):
            raise _Unclear("an option of `set -o`")


# --- shells ---


def _shell(simple: SimpleCommand, shell: Shell, depth: int) -> SimpleCommand:
    """Read `sh [options] -c line [name [argument...]]`."""
    words = simple.marked
    at, has_line = 1, False
    while at < len(words):
        word = words[at]
        if not is_known(word):
            break
        if word in ("-", "--"):
            at += 1
            break
        if shell == "bash" and word in _LONG_FLAGS and not has_line:
            at += 1
            continue
        if len(word) < 2 or word[0] not in "-+" or word.startswith("--"):
            break
        at += 1
        for letter in word[1:]:
            if letter == "c":
                has_line = True
            elif letter == "o" or (letter == "O" and shell == "bash"):
                allowed = _NAMED_FLAGS if letter == "o" else _SHOPT
                if at >= len(words) or words[at] not in allowed:
                    raise _Unclear(f"an option of `{simple.program} -{letter}`")
                at += 1
            elif letter not in _FLAGS[shell]:
                raise _Unclear(f"the option `{word}` of `{simple.program}`")
    if not has_line:
        if at < len(words) and is_known(words[at]) and not words[at].startswith(("-", "+")):
            return simple  # A script is treated like any other program: its effect is unknown, and the rules decide.
        raise _Unclear(f"`{simple.program}` without `-c`")
    if at >= len(words):
        raise _Unclear(f"`{simple.program} -c` without a line")
    if words[at].startswith(("--", "+")) or not is_known(words[at]):
        raise _Unclear(f"the code passed to `{simple.program} -c`")
    found = parse(words[at], shell, depth + 1)
    unclear = found.unclear[0] if found.unclear else ""
    return msgspec.structs.replace(simple, inner=found.commands, unclear=unclear, transparent=True)


# --- programs with options before a command ---


def _behind_options(simple: SimpleCommand, grammar: _Grammar, shell: Shell, depth: int) -> SimpleCommand:
    program, words = simple.program, simple.marked
    if program == "command" and len(words) > 1 and words[1] in ("-v", "-V"):
        return simple
    if program == "exec" and len(words) == 1:
        return simple
    at, replaced = _skip_options(program, words, grammar)
    if grammar.operand:
        if at >= len(words) or re.fullmatch(grammar.operand, words[at]) is None:
            raise _Unclear(f"the arguments of `{program}`")
        at += 1
    assigned = []
    while grammar.assigns and at < len(words) and re.match(r"[A-Za-z_]\w*=", words[at]):
        problem = assignment_problem(words[at])
        if problem:
            raise _Unclear(problem)
        assigned.append(words[at])
        at += 1
    rest = words[at:]
    if program == "xargs":
        # Without a command, xargs runs echo.
        rest = _filled(rest or ("echo",), replaced)
    if not rest:
        if program in ("env", "time"):
            return simple
        raise _Unclear(f"`{program}` without a command")
    if not _is_word(rest[0]):
        raise _Unclear(f"the command run by `{program}`")
    inner = _finished(rest, tuple(assigned), (), shell, depth + 1)
    if program == "time" and (inner.program in KEYWORDS or "=" in inner.program):
        raise _Unclear("`time` before a shell construct")
    return msgspec.structs.replace(simple, inner=(inner,), transparent=grammar.transparent)


def _skip_options(program: str, words: Sequence[str], grammar: _Grammar) -> tuple[int, str]:
    """Return the index after the options, and the text that `xargs -I` replaces."""
    at, replaced = 1, ""
    while at < len(words):
        word = words[at]
        if not is_known(word):
            break
        if word == "--" and program not in ("time", "nohup"):
            return at + 1, replaced
        if word == "-" and program == "env":
            at += 1
        elif word.startswith("--"):
            name, given, _ = word.partition("=")
            if name in grammar.long_valued:
                at += 1 if given else 2
            elif word in grammar.long:
                at += 1
            else:
                raise _Unclear(f"the option `{word}` of `{program}`")
        elif word.startswith("-") and len(word) > 1:
            at += 1
            for place, letter in enumerate(word[1:], 2):
                if letter in grammar.valued:
                    # The rest of a group of letters is the option's value; if there is none, the next word is.
                    value = word[place:]
                    if not value:
                        value = words[at] if at < len(words) else ""
                        at += 1
                    replaced = value if program == "xargs" and letter == "I" else replaced
                    break
                if letter not in grammar.flags:
                    raise _Unclear(f"the option `{word}` of `{program}`")
        else:
            break
    return at, replaced


def _filled(words: Sequence[str], replaced: str) -> tuple[str, ...]:
    """Return the words of a command that `xargs` runs, with marks for the words that it inserts."""
    if not replaced:
        return (*words, MORE)
    if not is_known(replaced):
        raise _Unclear("the text that `xargs -I` replaces")
    return tuple(word.replace(replaced, mark("{}")) if is_known(word) else word for word in words)


def _run_by_find(marked: Sequence[str], shell: Shell, depth: int) -> Iterator[SimpleCommand]:
    """Read the commands of `find -exec ... ;` and `find -exec ... {} +`."""
    # The names that find inserts begin with one of its starting points, none of which is an option, or with `./`.
    path = FILE + mark("{}")
    at = 1
    while at < len(marked):
        word = marked[at]
        at += 1
        if word not in _FIND_RUNS:
            if word in _FIND_VALUED:
                at += _FIND_VALUED[word]
            elif word.startswith("-") and word not in _FIND_PLAIN:
                raise _Unclear(f"`find {written(word)}`")
            continue
        words: list[str] = []
        while at < len(marked) and marked[at] != ";" and not (marked[at] == "+" and marked[at - 1] == "{}"):
            words.append(marked[at].replace("{}", path))
            at += 1
        if at >= len(marked) or not words:
            raise _Unclear("an unterminated `find -exec` command")
        if not is_known(words[0]):
            raise _Unclear("the command run by `find -exec`")
        yield _in_other_directory(_finished(tuple(words), (), (), shell, depth + 1))
        at += 1


# --- commands that are not understood, for rules that deny ---


def _guessed(simple: SimpleCommand, told: str | None, shell: Shell, depth: int) -> Iterator[SimpleCommand]:
    """Yield the commands that a command may run which is not understood.

    Candidates are every suffix of its arguments, and shell texts in them.
    """
    # Bounded: each suffix is compared with every pattern.
    words = simple.marked[1:31]
    runs = simple.program in _UNMODELLED | _GRAMMARS.keys() | {"builtin", "coproc", "find"}
    if runs and depth < DEEPEST:
        for start in range(len(words)):
            if is_known(words[start]) and not words[start].startswith("-"):
                yield SimpleCommand(marked=tuple(words[start:]))
    if simple.program in _SHELLS or simple.program in _UNMODELLED or simple.program in ("eval", "trap", "env"):
        texts = words if simple.program != "eval" else (" ".join(words),)
        for text in (*texts, *([told] if told is not None else [])):
            if depth < DEEPEST:
                yield from parse(written(text), shell, depth + 1).commands
