"""Random lines of shell, and a throwaway sandbox that says what each of them does.

`random_line` draws from a grammar that has what the parser of permissions understands, what it rejects, and mutations of
both. `Sandbox.run` executes lines one after another in a directory of its own, and returns for each the files that changed
and the programs that ran. Programs that are not among `REAL` are stubs that record their call. With bubblewrap the rest of
the machine is read-only; without it the lines still name nothing outside of their directory.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DRIVER = Path(__file__).with_name("shell_sandbox.py")

ALLOWED = (
    *("ls *", "cat *", "grep *", "find *", "sed *", "sort *", "head *", "tail *", "wc *", "echo *", "awk *", "uniq *"),
    *("cd *", "printf *", "test *", "[ *", "cut *", "tr *", "diff *", "date *", "tar t*", "command -v *"),
    *("git status*", "git diff*", "git log*", "git grep *", "pytest *", "make *"),
)
"""An allow list of programs that read. `pytest` and `make` are stubs in the sandbox."""

MAY_RUN = {"pytest", "make"}

_FILES = [
    "a.txt",
    "b.py",
    "src",
    "src/x.py",
    "'sp ace.txt'",
    "missing",
    ".",
    "rm",
    "notes.md",
    "./a.txt",
    "src/../b.py",
]
_ODD = [
    *("*", "*.py", "?.txt", "[ab]*", "$X", "$Y", '"$X"', "${Z}", "$HOME", '"$HOME/a.txt"', "~/a.txt", "~", "~+", "$_"),
    *(
        "$(evil)",
        "`evil`",
        '"$(evil)"',
        '"`evil`"',
        "${X:-$(evil)}",
        "${N:=evil}",
        "${X@P}",
        "$((1+1))",
        "$((a[$(evil)]))",
    ),
    *(
        "$[1+1]",
        "$'\\x72m'",
        '$"x"',
        "a{b,c}",
        "{evil,x}",
        "{a.txt,-delete}",
        "<(evil)",
        ">(evil)",
        "$1",
        "$@",
        "$?",
        "$$",
    ),
    *(
        "'$(evil)'",
        '"\\$(evil)"',
        "\\$X",
        "a\\ b",
        '"a;evil"',
        "'a|evil'",
        "x'y'\"z\"",
        "-",
        "--",
        "é",
        "'é'",
        "{}",
        "a#b",
        "#c",
    ),
    *(
        "'a[$(evil)]'",
        "!x",
        "@(a|b)",
        "+(a)",
        "HEAD~1",
        "x=y",
        "NO_COLOR=1",
        "%",
        "^",
        "'",
        '"',
        "\\",
        "$",
        '"$"',
        "a$",
        '"a$"',
    ),
]
_OPTIONS = ["-n", "-l", "-a", "-1", "-c", "-v", "-e", "-i", "-o", "-x", "--help", "-rn", "-C", "-ni", "--color=never"]

_COMMANDS = [
    *(
        "ls -la",
        "ls",
        "cat a.txt",
        "head -n 2 a.txt",
        "tail -1 b.py",
        "wc -l a.txt",
        "echo hi",
        "printf '%s\\n' x",
        "cd src",
    ),
    *(
        "grep -rn a .",
        "grep -c x a.txt",
        "cut -c1 a.txt",
        "tr a b < a.txt",
        "diff a.txt b.py",
        "pytest -q",
        "make test",
    ),
    *(
        "find . -name '*.py'",
        "find . -type f -print0",
        "find . -delete",
        "find src -fprint pwn",
        "find . -fprintf pwn %p",
    ),
    *(
        "find . -exec cat {} +",
        "find . -exec rm {} \\;",
        "find . -execdir evil \\;",
        "find . -name -exec -exec evil \\;",
    ),
    *(
        "find . -ok rm {} \\;",
        "find . -exec sh -c 'evil {}' \\;",
        "find $X",
        "find {.,-delete}",
        "find . -exec grep a {} \\;",
    ),
    *(
        "sed -n 1,2p a.txt",
        "sed s/a/b/ a.txt",
        "sed -i s/a/b/ a.txt",
        "sed 'w pwn' a.txt",
        "sed 1e\\ evil a.txt",
        "sed -ni p a.txt",
    ),
    *(
        "sed 's/o/evil/e' a.txt",
        "sed 's/o/x/w pwn' a.txt",
        "sed -e p -e '1w pwn' a.txt",
        "sed --in-place p a.txt",
        "sed 's/[/]/w pwn;/' a.txt",
    ),
    *(
        "sed -n '/a/,/b/p' a.txt",
        "sed 's,a,b,;w pwn' a.txt",
        "sed -f s.sed a.txt",
        "sed -n '$p;1,2p' a.txt",
        "sed -E 's/(a)/\\1/g' a.txt",
    ),
    *(
        "sort a.txt",
        "sort -o pwn a.txt",
        "sort --output=pwn a.txt",
        "sort --outp=pwn a.txt",
        "sort a.txt -ro pwn",
        "sort *",
        "sort -u b.py",
    ),
    *("sort -S1 --compress-program=evil a.txt", "uniq a.txt", "uniq a.txt pwn", "uniq -c a.txt", "date +%s", "date -u"),
    *(
        "awk '{print $1}' a.txt",
        "awk '{print > \"pwn\"}' a.txt",
        "awk 'BEGIN{system(\"evil\")}'",
        "awk '{print | \"evil\"}' a.txt",
    ),
    *(
        "awk 'BEGIN{\"evil\"|getline}'",
        "awk '$1>1{n++}END{print n}' a.txt",
        "awk -F: '{print $1}' a.txt",
        "awk 'NR>=2' a.txt",
        "awk 'NR>1' a.txt",
    ),
    *("awk -f s.awk a.txt", "tar tf a.tar", "tar tf a.tar --to-command=evil", "tar xf a.tar", "tar t -I evil -f a.tar"),
    *(
        "git status",
        "git status --short",
        "git diff",
        "git diff --stat",
        "git diff --output=pwn",
        "git diff --outp=pwn HEAD",
    ),
    *(
        "git log --oneline",
        "git log -p -1",
        "git log --output=pwn -p",
        "git -c alias.x='!evil' x",
        "git -c core.fsmonitor=evil status",
    ),
    *(
        "git grep a",
        "git grep -Oevil a",
        "git grep --open-files-in-pager=evil a",
        "git difftool -y -x evil HEAD",
        "git diff --no-index a.txt b.py",
    ),
    *(
        "git --exec-path=. status",
        "git bisect run evil",
        "git config alias.x '!evil'",
        "git x",
        "git diff *",
        "git diff -- *",
        "git -C src status",
    ),
    *(
        "rm a.txt",
        "/bin/rm x",
        "\\rm x",
        "r''m x",
        "touch pwn",
        "evil",
        "./run",
        "src/run",
        "'ls evil'",
        "'cat a.txt'",
        "l?",
        "$Y x",
        "tee pwn",
    ),
    *(
        "command -v ls",
        "command rm x",
        "test -f a.txt",
        "[ -f a.txt ]",
        "[ -v 'a[$(evil)]' ]",
        "test 'a[$(evil)]' -eq 0",
        "printf -v x y",
    ),
    *(
        "eval evil",
        "eval 'touch pwn'",
        "source s.sh",
        ". ./s.sh",
        "trap evil EXIT",
        "alias ls=evil",
        "export PATH=.",
        "declare -x A=b",
    ),
    *(
        "read A",
        "unset PATH",
        "hash -p ./run ls",
        "enable -n echo",
        "set -e",
        "set -euo pipefail",
        "set -k",
        "shopt -s expand_aliases",
    ),
    *(
        "exec ls",
        "exec > pwn",
        "exec 3> pwn",
        "builtin eval evil",
        "true",
        "false",
        "exit 0",
        ":",
        ": ${N:=$(evil)}",
        "let a=1",
        "python3 -c x",
    ),
    *(
        "(ls)",
        "{ ls; }",
        "if ls; then evil; fi",
        "for f in *; do cat $f; done",
        "while evil; do break; done",
        "case a in a) evil;; esac",
    ),
    *(
        "f() { evil; }",
        "function ls { evil; }",
        "ls() { evil; }",
        "[[ -n $(evil) ]]",
        "[[ -f a.txt ]]",
        "(( a[$(evil)] ))",
        "coproc evil",
    ),
    *(
        "! ls",
        "time ls",
        "time -p evil",
        "until evil; do break; done",
        "select x in a; do evil; done",
        "A=$(evil)",
        "A=1",
        "A=1 ls",
    ),
    *(
        "NO_COLOR=1 ls",
        "CI=true pytest -q",
        "PATH=. ls",
        "LD_PRELOAD=./x ls",
        "GIT_PAGER=evil git log",
        "GIT_PAGER=cat git log",
        "A=(evil)",
    ),
    *(
        "a[$(evil)]=1",
        "A+=x",
        "NO_COLOR='$(evil)' ls",
        "GIT_EXTERNAL_DIFF=./run git diff",
        "LC_ALL=C sort a.txt",
        "TZ=UTC date",
        "IFS=x ls",
    ),
]
_CALM = [
    *(
        "ls -la",
        "ls",
        "cat a.txt",
        "head -n 2 a.txt",
        "tail -1 b.py",
        "wc -l a.txt",
        "echo hi",
        "printf '%s\\n' x",
        "cd src",
    ),
    *(
        "grep -rn a .",
        "cut -c1 a.txt",
        "tr a b < a.txt",
        "diff a.txt b.py",
        "pytest -q",
        "make test",
        "true",
        "set -e",
        "exit 0",
    ),
    *(
        "find . -name '*.py'",
        "find . -exec cat {} +",
        "find src -type f -exec grep a {} \\;",
        "sed -n 1,2p a.txt",
        "sed s/a/b/ a.txt",
    ),
    *(
        "sort a.txt",
        "uniq -c a.txt",
        "date +%s",
        "awk '{print $1}' a.txt",
        "awk '$1>1{n++}' a.txt",
        "tar tf a.tar",
        "[ -f a.txt ]",
    ),
    *(
        "git status --short",
        "git diff --stat",
        "git log --oneline -3",
        "git grep a",
        "git diff -- a.txt",
        "NO_COLOR=1 ls",
        "CI=true make x",
    ),
    *(
        "LC_ALL=C sort a.txt",
        "cat <<'E'\n$(evil)\nE",
        "cat <<E\nplain\nE",
        "command -v ls",
        "cat a.txt 2>/dev/null",
        "ls 2>&1",
    ),
]
_CALM_WRAPPERS = [
    *(
        "bash -c Q",
        "sh -c Q",
        "bash -lc Q",
        "bash -eo pipefail -c Q",
        "sh -ec Q",
        "env C",
        "env NO_COLOR=1 C",
        "timeout 5 C",
        "nice -n 5 C",
    ),
    *(
        "nohup C",
        "time C",
        "command C",
        "exec C",
        "xargs -n 1 C",
        "ls | xargs C",
        "ls | xargs -I{} C",
        "find . -exec C \\;",
        "dash -c Q",
        "zsh -c Q",
    ),
]
_WRAPPERS = [
    *(
        "bash -c Q",
        "sh -c Q",
        "dash -c Q",
        "bash -lc Q",
        "bash -eo pipefail -c Q",
        "bash -o pipefail -c Q",
        "bash -c -- Q",
        "bash -c -e Q",
    ),
    *(
        "bash +x -c Q",
        "bash -O extglob -c Q",
        "bash --rcfile s.sh -c Q",
        "bash --norc -c Q",
        "bash -norc -c Q",
        "sh -o errexit -c Q",
        "bash -ic Q",
    ),
    *(
        "bash -xc Q evil a",
        "rbash -c Q",
        "sh -s <<< Q",
        "bash s.sh",
        "sh -ec Q",
        "bash -c Q -c evil",
        "bash -o Q -c evil",
        "/bin/sh -c Q",
        "./sh -c Q",
    ),
    *(
        "env C",
        "env -i C",
        "env A=1 C",
        "env NO_COLOR=1 C",
        "env -u X C",
        "env -S 'evil x'",
        "env -- C",
        "env -C src C",
        "env - C",
        "env -iu X C",
    ),
    *(
        "timeout 5 C",
        "timeout -s KILL 5 C",
        "timeout -k 1 5 C",
        "timeout --signal=TERM 5s C",
        "timeout --sig=TERM 5 C",
        "timeout evil C",
        "timeout -k evil 5 C",
    ),
    *(
        "nice C",
        "nice -n 5 C",
        "nice -5 C",
        "nice --adj=3 C",
        "nohup C",
        "time C",
        "time -p C",
        "\\time -o pwn C",
        "command C",
        "command -p C",
        "exec C",
    ),
    *(
        "exec -a x C",
        "exec -c C",
        "xargs C",
        "xargs -n 1 C",
        "xargs -I{} C",
        "xargs -I ls C",
        "xargs -0 C",
        "xargs --max-args=1 C",
        "xargs -i C",
        "xargs -P2 C",
    ),
    *(
        "echo evil | xargs",
        "echo evil | xargs -n1 env",
        "echo -delete | xargs find .",
        "ls | xargs C",
        "echo evil | xargs -I% sh -c %",
        "stdbuf -oL C",
    ),
    *(
        "find . -exec C {} +",
        "find . -exec C \\;",
        "find . -name x -o -exec C \\;",
        "setsid C",
        "ionice C",
        "echo evil | sh",
        "echo Q | bash",
        "parallel C",
    ),
    *(
        "cat <<'E' | C\nevil\nE",
        "cat <<E\n$(evil)\nE",
        "cat <<E\nplain\nE",
        "sh <<'E'\nevil\nE",
        "C <<'E'\n$(evil)\nE",
        "C <<-'E'\n\tx\n\tE",
        "C <<'E'\nx",
    ),
]
_REDIRECTIONS = [
    *(
        "> pwn",
        ">> pwn",
        ">| pwn",
        "&> pwn",
        "&>> pwn",
        "2> pwn",
        "2>pwn",
        "<> pwn",
        ">& pwn",
        "> $X",
        "> *.py",
        "{fd}> pwn",
        "> ~/pwn",
    ),
    *(
        "2>&1",
        "> /dev/null",
        "2>/dev/null",
        "< a.txt",
        "<<< evil",
        ">&2",
        "1>&2",
        "> 'p wn'",
        "3>&1",
        "2>&-",
        "&> /dev/null",
        "> src/pwn",
    ),
    *(
        "< /dev/tcp/127.0.0.1/9",
        "> >(evil)",
        "< <(evil)",
        "> /dev/fd/1",
        ">pwn",
        "< $X",
        ">\npwn",
        ">&$X",
        "> \\\npwn",
        "<&0",
        "0<a.txt",
    ),
]
_JOINS = [
    "; ",
    " && ",
    " || ",
    " | ",
    " & ",
    "\n",
    " |& ",
    ";",
    "|",
    "&&",
    " ;; ",
    "\n\n",
    " ; \\\n",
    " && \\\n",
    " |\n",
    " # x\n",
    "\r\n",
    "\t;\t",
]
_AROUND = [
    *(
        "(%s)",
        "{ %s; }",
        "if true; then %s; fi",
        "for i in 1; do %s; done",
        "while %s; do break; done",
        "f() { %s; }; f",
        "! %s",
    ),
    *(
        "echo $(%s)",
        'echo "$(%s)"',
        "echo `%s`",
        "cat <(%s)",
        "%s &",
        "[[ $(%s) ]]",
        "case x in x) %s;; esac",
        "coproc %s",
        "time %s",
    ),
    *(
        "(%s) > pwn",
        "{ %s; } > pwn",
        "for i in 1; do %s; done > pwn",
        "if true; then %s; fi > pwn",
        "while %s; do break; done 2> pwn",
        "trap '%s' EXIT",
    ),
    *("A=$(%s)", "A=1 %s", "true && { %s; }", "eval %s", "%s # '", "# %s", "echo '%s'", 'echo "%s"', ": '\n%s\n'"),
]
_MUTATIONS = [
    *"$`\"'\\;&|<>(){}[]!#~*?=^%@+-:, \t\n\r",
    "\\\n",
    "$(",
    "\u00a0",
    "\u3000",
    "\x00",
    "\x0b",
    "\u200b",
    "é\\",
    "evil",
    ";evil;",
    "`evil`",
    "$(evil)",
    "\nevil\n",
]


def random_line(draw: random.Random) -> str:
    """Return a line of one to four commands, sometimes mutated. Half of the lines begin as ones that are understood."""
    calm = draw.random() < 0.5
    line = _command(draw, calm=calm)
    for _ in range(draw.choice((0, 0, 0, 1, 1, 2, 3))):
        join = draw.choice(_JOINS[:4]) if calm or draw.random() < 0.6 else draw.choice(_JOINS)
        line += join + _command(draw, calm=calm)
    if not calm and draw.random() < 0.12:
        line = draw.choice(_AROUND).replace("%s", line)
    if draw.random() < 0.2:
        for _ in range(draw.choice((1, 1, 2, 3))):
            at = draw.randrange(len(line) + 1)
            cut = at + (draw.random() < 0.4)
            line = line[:at] + draw.choice(_MUTATIONS) + line[cut:]
    return line


def _command(draw: random.Random, depth: int = 0, *, calm: bool) -> str:
    if draw.random() < 0.22 and depth < 3:
        wrapper = draw.choice(_CALM_WRAPPERS if calm else _WRAPPERS)
        inner = _command(draw, depth + 1, calm=calm)
        if "Q" in wrapper:
            inner = "'" + inner.replace("'", "'\\''") + "'"
        line = (
            wrapper.replace("Q", inner).replace("C", inner, 1) if wrapper[0] != "C" else wrapper.replace("C", inner, 1)
        )
    else:
        line = draw.choice(_CALM if calm else _COMMANDS)
        for _ in range(draw.choice((0, 0, 0, 0, 1, 1, 2))):
            words = _FILES if calm and draw.random() < 0.7 else draw.choice((_FILES, _FILES, _FILES, _OPTIONS, _ODD))
            line += " " + draw.choice(words)
    if not calm and draw.random() < 0.15:
        line = f"{line} {draw.choice(_REDIRECTIONS)}" if draw.random() < 0.8 else f"{draw.choice(_REDIRECTIONS)} {line}"
    return line


_TOKENS = [
    *(
        "a",
        "b",
        "c",
        " ",
        " ",
        " ",
        " ",
        "'",
        '"',
        "\\",
        "$",
        "`",
        ";",
        "&",
        "|",
        "<",
        ">",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        "!",
        "#",
    ),
    *(
        "~",
        "*",
        "?",
        "=",
        "\n",
        "\t",
        "\\\n",
        "<<E",
        "<<'E'",
        "\nE\n",
        "$X",
        "if ",
        "then ",
        "fi",
        "time ",
        ">f",
        ">>g",
        "2>&1",
        "&&",
    ),
    *(
        "||",
        "{a,b}",
        "CI=1 ",
        "A=1 ",
        "é",
        "do ",
        "done",
        "'x y'",
        '"x  y"',
        "&>h",
        "<&",
        "2>",
        "-",
        "a b",
        "a 'b c'",
        "\nE",
        "<<-E",
        "%",
    ),
    *(
        "<<\\E",
        "E",
        "exec ",
        "command ",
        "env ",
        "\u00a0",
        "1",
        "^",
        ",",
        "..",
        ":",
        "+",
        "@",
        "./",
        "a=b",
        "~a",
        "a~",
        "$$",
        "$?",
        "${X}",
    ),
    *("${", "\r", "!a", "coproc ", "case ", "in ", "esac", "function ", "[[ ", "]]"),
]


def random_tokens(draw: random.Random) -> str:
    """Return a text of a few tokens that mean something to a shell."""
    return "".join(draw.choice(_TOKENS) for _ in range(draw.choice((2, 3, 4, 5, 6, 8, 10, 14))))


def executed_words(line: str, directory: Path) -> list[list[str]]:
    """Execute a line with bash, without any program, and return the words of each command that bash looked for."""
    record = directory / "record"
    handler = f'() {{  {{ printf "%s\\0" "$@"; printf "\\1\\0"; }} >> {record}; }}'
    environment = {"PATH": "/nonexistent", "HOME": "/home/h", "X": "xx", "LC_ALL": "C.UTF-8"}
    environment["BASH_FUNC_command_not_found_handle%%"] = handler
    box = directory / "box"
    box.mkdir(exist_ok=True)
    subprocess.run(
        [shutil.which("bash") or "bash", "-c", line],
        cwd=box,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    if not record.exists():
        return []
    found = record.read_bytes().decode(errors="replace").split("\1\0")
    record.unlink()
    return [each.split("\0")[:-1] for each in found[:-1]]


class Sandbox:
    """A directory in which lines are executed. `run` may be called several times."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def run(self, lines: Sequence[str]) -> list[dict[str, Any]]:
        """Execute lines with bash, and return what each did: `changed` files and `ran` stubs."""
        box = self._directory / "box"
        shutil.rmtree(box, ignore_errors=True)
        box.mkdir(parents=True)
        argv = [sys.executable, "-I", "-S", "-B", str(DRIVER), str(box)]
        held = [
            *("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--die-with-parent")
        ]
        held += ["--tmpfs", "/tmp"]
        for each in (sys.prefix, sys.base_prefix, str(DRIVER)):  # the clone may be below /tmp
            held += ["--ro-bind", each, each]
        held += ["--bind", str(box), str(box)]
        if shutil.which("bwrap") is not None and subprocess.run([*held, "true"], capture_output=True).returncode == 0:
            argv = [*held, *argv]
        ended = subprocess.run(argv, input=json.dumps(list(lines)).encode(), capture_output=True, timeout=3000)
        assert ended.returncode == 0, ended.stderr.decode()
        found: list[dict[str, Any]] = json.loads(ended.stdout)
        return found
