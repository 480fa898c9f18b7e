"""Rewording check: which tests fail when the words of a message change?

    python tests/mutation/reword.py --results /tmp/reword.jsonl
    python tests/mutation/reword.py --results /tmp/reword.jsonl --report

copies the repository to a temporary directory, rewords every message of `support/message_source.py` in the copy, writes
its golden file anew, and runs the tests there, folder by folder. `--report` prints each message that more than one test
quotes. To resume, run the same command again: folders with a result are skipped.

A reworded text has its vowels doubled and a mark `~<number>~`: "there is no agent {name}" becomes "theeree~7~ iis noo
aageent {name}". Placeholders, quoted names, options and paths keep their spelling, because they are facts, not words.

A failed test depends on the message whose old words its failure output quotes. The test may quote further messages
behind the assertion that failed. Therefore the dependent tests of a folder run again with the old words of the messages
found so far, until no test fails or nothing more is found. A test that fails in an unchanged copy too is left out.

The cases of a parametrised test count as one test. tests/golden is left out: it has each message once by design.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from support.message_source import (  # noqa: E402 - tests/ is not on the path of a program
    extract_messages,
    format_golden,
    message_nodes,
    source_files,
)

ROUNDS = 6
"""Maximum runs of one folder."""
FEWEST_WORDS = 2
"""Words in sequence that a failure has to share with a message to be attributed to it."""
_LONGEST_OUTPUT = 30_000
MARKS = "not (full or soak or browser or interop)"
LEFT_OUT = {"golden", "mutation", "interop", "benchmarks", "corpus", "support", "fixtures"}

_FACT = re.compile(
    r"`[^`]*`|'[^']*'|\"[^\"]*\"|\{[^{}]*\}|%\([^)]*\)\w|%[\w.]+|<[^>]*>"
    r"|\bcallboard(?: [a-z-]+)+|\S*[/_.:~\\-][\w/~\\-]\S*"
)
"""Parts of a text that keep their spelling: quotations, placeholders, commands, options, paths, identifiers."""
_WORD = re.compile(r"\b[a-z]{2,}\b")
_MARK = re.compile(r"~(\d+)~")


@dataclass
class Failure:
    """A failed test and its output."""

    test: str
    """File and function: `tests/a/test_b.py::test_c`."""
    output: str


def reword(text: str, number: int) -> str:
    """Return a text with other words and the same facts, or the same text if it has no words."""
    parts: list[str] = []
    end = 0
    for fact in [*_FACT.finditer(text), None]:
        words = text[end : fact.start() if fact else len(text)]
        parts.append(_WORD.sub(lambda word: re.sub(r"[aeiou]", lambda vowel: vowel[0] * 2, word[0]), words))
        if fact:
            parts.append(fact[0])
            end = fact.end()
    changed = "".join(parts)
    if changed == text:
        return text
    differing = (at for at, (old, new) in enumerate(zip(text, changed, strict=False)) if old != new)
    first = next(differing, len(text) - 1)  # "no" becomes "noo"
    word_end = re.compile(r"(?![a-z])").search(changed, first)
    at = word_end.start() if word_end else len(changed)
    return f"{changed[:at]}~{number}~{changed[at:]}"


class Copy:
    """A copy of the repository with an environment of its own, in which messages are reworded."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "callboard"
        self.python = _environment(directory)
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, files.split("\0")):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name, follow_symlinks=False)
        (self.root / ".venv").symlink_to(self.python.parents[1])
        self.texts = extract_messages(ROOT)
        self.numbers = {key: number for number, key in enumerate(self.texts, 1)}
        self.keys = dict(enumerate(self.texts, 1))
        self.packages: tuple[str, ...] = ("",)

    def write(self, kept: Iterable[str]) -> None:
        """Reword the messages of `packages`, but for those whose ids are `kept`, and write the golden file."""
        kept = set(kept)
        for path in source_files(ROOT):
            relative = path.relative_to(ROOT)
            source = path.read_text(encoding="utf-8")
            if relative.as_posix().startswith(self.packages):
                source = self._reworded(ast.parse(source), relative, kept) or source
            target = self.root / relative
            if target.read_text(encoding="utf-8") != source:
                target.write_text(source, encoding="utf-8")
        golden = self.root / "tests" / "golden" / "messages.txt"
        golden.write_text(format_golden(extract_messages(self.root)), encoding="utf-8")

    def _reworded(self, tree: ast.Module, relative: Path, kept: set[str]) -> str | None:
        changed = False
        for key, node in list(message_nodes(tree, relative)):
            if key in kept:
                continue
            for part in node.values if isinstance(node, ast.JoinedStr) else [node]:
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    part.value = reword(part.value, self.numbers[key])
                    changed = True
        return ast.unparse(tree) if changed else None

    def failures(self, tests: list[str], workers: int, show: bool) -> list[Failure]:
        """Run tests and return those that failed."""
        report = self.root.parent / "report.xml"
        report.unlink(missing_ok=True)
        command = [str(self.python), "-m", "pytest", "-q", "-vv", "--tb=short", "-m", MARKS, "--workers", str(workers)]
        command += [f"--junitxml={report}", "-o", "junit_family=xunit1", "-o", "junit_logging=all", *tests]
        environment = {**os.environ, "TMPDIR": str(self.root.parent / "t"), "PATH": self._path()}
        (self.root.parent / "t").mkdir(exist_ok=True)
        output = None if show else subprocess.DEVNULL
        subprocess.run(command, cwd=self.root, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        if not report.exists():
            raise SystemExit(f"pytest wrote no report; run again with --show: {' '.join(tests)}")
        return _read_report(report)

    def _path(self) -> str:
        return os.pathsep.join([str(self.python.parent), os.environ["PATH"]])


def _environment(directory: Path) -> Path:
    """Make a virtual environment with the installed packages of this one, in which `callboard` is the copy."""
    base = Path(sys.prefix)
    mine = directory / "venv"
    packages = next((base / "lib").glob("python3*/site-packages"))
    site = mine / packages.relative_to(base)
    site.mkdir(parents=True)
    for entry in packages.iterdir():
        if not entry.name.startswith("__editable__"):
            (site / entry.name).symlink_to(entry)
    (site / "copy.pth").write_text(f"{directory}\n")
    (mine / "bin").mkdir()
    for entry in (base / "bin").iterdir():
        target = mine / "bin" / entry.name
        if entry.is_symlink():
            target.symlink_to(entry.resolve())
        elif entry.name == "callboard":
            target.write_text(entry.read_text().replace(str(base), str(mine)))
            target.chmod(0o755)
    shutil.copy(base / "pyvenv.cfg", mine)
    for name in ("interop", "node"):
        if (base / name).exists():
            (mine / name).symlink_to(base / name)
    return mine / "bin" / "python"


def _read_report(report: Path) -> list[Failure]:
    outputs: dict[str, list[str]] = {}
    for case in ET.parse(report).iter("testcase"):
        for bad in (*case.iter("failure"), *case.iter("error")):
            test = f"{case.get('file')}::{case.get('name', '').partition('[')[0]}"
            logs = [each.text or "" for name in ("system-out", "system-err") for each in case.iter(name)]
            outputs.setdefault(test, []).append("\n".join([bad.get("message") or "", bad.text or "", *logs]))
    return [Failure(test, "\n".join(output)) for test, output in outputs.items()]


class Attribution:
    """Search of outputs for the words of messages."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts
        self.sequences: dict[tuple[str, ...], set[str]] = {}
        for key, text in texts.items():
            for sequence in _sequences(re.sub(r"\{[^{}]*\}", " \0 ", text)):
                if any(_WORD.fullmatch(word) and re.search("[aeiou]", word) for word in sequence):
                    self.sequences.setdefault(sequence, set()).add(key)

    def find(self, output: str, marked: set[str], kept: set[str]) -> set[str]:
        """Return the ids of the messages, but for `kept`, whose old words an output quotes in the longest sequence.

        A message whose mark is in the output needs `FEWEST_WORDS` words, another one twice as many.
        """
        scores: dict[str, int] = {}
        for sequence in _sequences(re.sub(r"\\[nrt]|\\", " ", output)):
            for key in self.sequences.get(sequence, set()) - kept:
                least = FEWEST_WORDS if key in marked else 2 * FEWEST_WORDS
                if len(sequence) >= least:
                    scores[key] = max(scores.get(key, 0), len(sequence) + 100 * (key in marked))
        if not scores:
            words = set(_WORD.findall(output))
            short = {key for key in marked - kept if any(len(w) > 4 and w in words for w in _words(self.texts[key]))}
            return short if len(short) == 1 else set()
        best = max(scores.values())
        return {key for key, score in scores.items() if score == best}


_LONGEST = 8


def _words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z']+|\0", text)


def _sequences(text: str) -> set[tuple[str, ...]]:
    words = _words(text)
    sizes = range(FEWEST_WORDS, _LONGEST + 1)
    return {tuple(words[at : at + size]) for size in sizes for at in range(len(words) - size + 1)}


def check_folder(copy: Copy, folder: str, workers: int, show: bool) -> dict[str, object]:
    """Return the row of a test folder: messages by test, and the tests whose failure is not explained."""
    words = Attribution(copy.texts)
    found: dict[str, set[str]] = {}
    unexplained: dict[str, str] = {}
    kept: set[str] = set()
    tests = [folder]
    for _ in range(ROUNDS):
        copy.write(kept)
        failures = copy.failures(tests, workers, show)
        new: set[str] = set()
        tests = []
        for failure in failures:
            marked = {copy.keys[int(mark)] for mark in _MARK.findall(failure.output) if int(mark) in copy.keys}
            keys = words.find(failure.output[-_LONGEST_OUTPUT:], marked, kept)
            if keys:
                found.setdefault(failure.test, set()).update(keys)
                new |= keys
                tests.append(failure.test)
            else:
                unexplained[failure.test] = failure.output[-1500:]
        if not new or not tests:
            break
        kept |= new
    if unexplained or found:
        copy.write(copy.texts)
        red = {failure.test for failure in copy.failures([*{*unexplained, *found}], workers, show)}
    else:
        red = set()
    return {
        "folder": folder,
        "messages": {test: sorted(keys) for test, keys in sorted(found.items()) if test not in red},
        "unexplained": {test: output for test, output in sorted(unexplained.items()) if test not in red},
        "red": sorted(red),
    }


def report(rows: Iterable[dict[str, object]], every: bool) -> int:
    """Print the messages that several tests quote; return their number."""
    tests: dict[str, set[str]] = {}
    unexplained: list[str] = []
    for row in rows:
        by_test, left = row["messages"], row["unexplained"]
        assert isinstance(by_test, dict)
        assert isinstance(left, dict)
        for test, keys in by_test.items():
            for key in keys:
                tests.setdefault(key, set()).add(test)
        unexplained += left
    several = {key: found for key, found in tests.items() if len(found) > (0 if every else 1)}
    for key, found in sorted(several.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"{len(found):3} {key}")
        for test in sorted(found):
            print(f"      {test}")
    for test in unexplained:
        print(f"  ? {test}")
    many = sum(len(found) > 1 for found in tests.values())
    print(f"{len(tests)} messages are quoted by tests, {many} of them by several; {len(unexplained)} tests unexplained")
    return many


def folders(tests: Path) -> list[str]:
    """Return the folders of tests that are run one after the other, relative to the root."""
    found: list[Path] = []
    for path in sorted(each for each in tests.iterdir() if each.is_dir() and each.name not in LEFT_OUT):
        found += sorted(each for each in path.iterdir() if each.is_dir()) if path.name == "actors" else [path]
    return [each.relative_to(tests.parent).as_posix() for each in found if any(each.rglob("test_*.py"))]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tests", nargs="*", help="test folders or files (default: all folders)")
    parser.add_argument("--results", type=Path, required=True, help="file that results are appended to (JSON lines)")
    parser.add_argument("--packages", nargs="+", default=[""], help="reword messages of these folders only")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--report", action="store_true", help="print the results and end")
    parser.add_argument("--all", action="store_true", help="with --report: messages that one test quotes, too")
    parser.add_argument("--show", action="store_true", help="show the output of the tests")
    options = parser.parse_args(arguments)
    rows = _read(options.results)
    if not options.report:
        todo = [folder for folder in options.tests or folders(ROOT / "tests") if folder not in rows]
        # A short prefix: tests create sockets in it, whose paths are limited to 108 bytes.
        with tempfile.TemporaryDirectory(prefix="rw", ignore_cleanup_errors=True) as directory:
            copy = Copy(Path(directory).resolve())
            copy.packages = tuple(options.packages)
            for folder in todo:
                row = rows[folder] = check_folder(copy, folder, options.workers, options.show)
                with options.results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(f"{folder}: {len(row['messages'])} dependent tests", flush=True)  # type: ignore[arg-type]  # a row of JSON
    return 1 if report(rows.values(), options.all) else 0


def _read(file: Path) -> dict[str, dict[str, object]]:
    rows = (json.loads(line) for line in file.read_text().splitlines()) if file.exists() else ()
    return {row["folder"]: row for row in rows}


if __name__ == "__main__":
    sys.exit(main())
