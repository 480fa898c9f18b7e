"""Test results: what the output of a test runner says that was run.

The exit status alone proves nothing: `unittest` of Python 3.11, `node --test` and many scripts end with 0 if they find
no test at all. Results have the names of the tests where the runner prints them, otherwise numbers.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Any

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
MOST_NAMES = 3_000
"""Names that are kept in the state of the graph; of more tests only the numbers."""

LONGEST_NAME = 200

if TYPE_CHECKING:
    from collections.abc import Iterator

    Names = dict[str, str]
    Results = dict[str, Any]
    """Numbers `passed`, `failed`, `skipped`, and `names`: of each test what came of it, or None."""
    Numbers = Iterator[tuple[int, int, int]]


def of_names(names: Names) -> Results:
    """Results with names."""
    numbers = [sum(outcome == wanted for outcome in names.values()) for wanted in (PASSED, FAILED, SKIPPED)]
    kept = {name[:LONGEST_NAME]: outcome for name, outcome in names.items()}
    return _numbered(*numbers, names=kept if len(names) <= MOST_NAMES else None)


def read(output: str, junit: Path | None = None) -> Results | None:
    """The results in the output of a test run; None if it does not show them."""
    if junit is not None and junit.is_file():
        names = _junit(junit)
        if names is not None:
            return of_names(names)
    for parse in (_unittest, _cargo, _go, _node):
        names = parse(output)
        if names is not None:
            return of_names(names)
    return _summaries(output)


def ran(results: Results | None) -> int:
    """How many tests were run."""
    return 0 if results is None else results[PASSED] + results[FAILED]


def _numbered(passed: int, failed: int, skipped: int, names: Names | None = None) -> Results:
    return {PASSED: passed, FAILED: failed, SKIPPED: skipped, "names": names}


def _junit(file: Path) -> Names | None:
    try:
        root = ET.parse(file).getroot()  # noqa: S314 - from the test runner, which could do worse
    except (ET.ParseError, OSError):
        return None
    names: Names = {}
    for case in root.iter("testcase"):
        name = "::".join(part for part in (case.get("classname"), case.get("name")) if part)
        tags = {child.tag for child in case}
        if "error" in tags and not case.get("classname"):  # a file that could not be imported is no test
            continue
        outcome = FAILED if tags & {"failure", "error"} else SKIPPED if "skipped" in tags else PASSED
        names[name] = FAILED if names.get(name) == FAILED else outcome
    return names


_UNITTEST = re.compile(r"^(\w+) \(([\w.<>]+)\)", re.MULTILINE)
_UNITTEST_END = re.compile(
    r"(?:^|\.\.\. )(ok|FAIL|ERROR|skipped\b.*|expected failure|unexpected success)\s*$", re.MULTILINE
)


def _unittest(output: str) -> Names | None:
    """The lines of `python -m unittest -v`; what a test prints may be before its `ok`."""
    number = re.search(r"^Ran (\d+) tests? in", output, re.MULTILINE)
    head = output[: number.start()].split("\n======")[0] if number else ""
    starts = list(_UNITTEST.finditer(head))
    if number is None or len(starts) != int(number[1]):  # without -v there are no names
        return None
    names: Names = {}
    for at, start in enumerate(starts):
        following = starts[at + 1] if at + 1 < len(starts) else None
        if "_FailedTest" in start[2]:  # a file that could not be imported
            continue
        ends = _UNITTEST_END.findall(head[start.end() : following.start() if following else None])
        name = start[2] if start[2].endswith(f".{start[1]}") else f"{start[2]}.{start[1]}"
        if any(end in ("FAIL", "ERROR", "unexpected success") for end in ends):
            names[name] = FAILED
        elif ends:
            names[name] = SKIPPED if ends[-1].startswith("skipped") else PASSED
    return names


def _cargo(output: str) -> Names | None:
    names: Names = {}
    where = ""
    for line in output.splitlines():
        running = re.match(r"\s+(?:Running (?:unittests )?(\S+)|(Doc-tests \S+))", line)
        if running:
            where = running[1] or running[2]
        test = re.match(r"test (.+) \.\.\. (ok|FAILED|ignored)", line)
        if test:
            names[f"{where} {test[1]}".strip()] = {"ok": PASSED, "FAILED": FAILED, "ignored": SKIPPED}[test[2]]
    return names or None


def _go(output: str) -> Names | None:
    """With -v each test has a line, and the line of its package follows; without, only the packages have lines."""
    names: Names = {}
    pending: Names = {}
    for line in output.splitlines():
        test = re.match(r"\s*--- (PASS|FAIL|SKIP): (\S+)", line)
        if test:
            pending[test[2]] = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}[test[1]]
        package = re.match(r"(ok|FAIL)\s*\t\s*(\S+)(.*)", line)
        if package:
            names.update({f"{package[2]} {name}": outcome for name, outcome in pending.items()})
            if not pending and package[1] == "ok" and "no tests to run" not in package[3]:
                names[package[2]] = PASSED
            pending = {}
    return names or None


_TAP = re.compile(r"^( *)(not )?ok \d+(?: - (.*?))?( # (?:SKIP|TODO).*)?$")
_JS_FILE = re.compile(r"\S+\.[cm]?[jt]sx?$")
_SPEC = re.compile(r"^( *)([✔✖﹣]) (.*?) \([\d.]+m?s\)( # .*)?$")


def _node(output: str) -> Names | None:
    """The lines of `node --test`: TAP, or what its reporter `spec` prints. A file without tests is listed as a test."""
    if not re.search(r"^(?:#|ℹ) tests \d+$", output, re.MULTILINE):
        return None
    names: Names = {}
    empty_files = 0
    lines = output.split("✖ failing tests:")[0].splitlines()
    for number, line in enumerate(lines):
        tap, spec = _TAP.match(line), _SPEC.match(line)
        if tap:
            if _is_suite(lines[number + 1 : number + 12], f"{tap[1]}  ..."):
                continue
            name, failed, skipped = tap[3] or line, bool(tap[2]), bool(tap[4])
        elif spec:
            name, failed, skipped = spec[3], spec[2] == "✖", spec[2] == "﹣"
            if f"{spec[1]}▶ {name}" in lines:
                continue
        else:
            continue
        if _JS_FILE.match(name) and not failed:
            empty_files += 1
            continue
        while name in names:
            name += "'"
        names[name] = FAILED if failed else SKIPPED if skipped else PASSED
    return names if names or empty_files else None


def _is_suite(block: list[str], end: str) -> bool:
    """Whether the details below a TAP line say that it sums up the tests of a suite."""
    details = block[: block.index(end)] if end in block else block
    return any(each.strip() == "type: 'suite'" for each in details)


# --- numbers ------------------------------------------------------------------------------------------------


def _summaries(output: str) -> Results | None:
    """The sum of all summaries of the first kind that occurs."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    for parse in _KINDS:
        found = list(parse(plain))
        if found:
            passed, failed, skipped = (sum(numbers[at] for numbers in found) for at in range(3))
            return _numbered(max(0, passed), failed, skipped)
    return None


def _words(text: str, passed: str, failed: str, skipped: str) -> tuple[int, int, int]:
    """`3 passed, 1 failed` as numbers; the words are regular expressions."""

    def count(words: str) -> int:
        return sum(int(number) for number in re.findall(rf"(\d+) (?:{words})\b", text))

    return count(passed), count(failed), count(skipped)


def _pytest_line(text: str) -> Numbers:
    for line in re.findall(
        r"^(?:=+ )?((?:\d+ \w+(?:, )?)+ in [\d.]+s.*|no tests (?:ran|collected).*)$", text, re.MULTILINE
    ):
        yield _words(line, "passed|xpassed|xfailed", "failed|errors?", "skipped|deselected")


def _unittest_line(text: str) -> Numbers:
    for number, end in re.findall(r"^Ran (\d+) tests? in .*\n+(OK.*|FAILED.*|NO TESTS RAN.*)?", text, re.MULTILINE):
        failed = sum(map(int, re.findall(r"\b(?:failures|errors|unexpected successes)=(\d+)", end)))
        failed -= sum(map(int, re.findall(r"\bexpected failures=(\d+)", end)))
        skipped = sum(map(int, re.findall(r"skipped=(\d+)", end)))
        yield int(number) - max(0, failed) - skipped, max(0, failed), skipped


def _cargo_line(text: str) -> Numbers:
    for each in re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", text, re.MULTILINE):
        yield int(each[0]), int(each[1]), int(each[2])


def _node_lines(text: str) -> Numbers:
    found: dict[str, list[int]] = {}
    for word, number in re.findall(r"^(?:#|ℹ) (tests|pass|fail|cancelled|skipped|todo) (\d+)$", text, re.MULTILINE):
        found.setdefault(word, []).append(int(number))
    if "tests" in found:
        sums = {word: sum(numbers) for word, numbers in found.items()}
        failed = sums.get("fail", 0) + sums.get("cancelled", 0)
        yield sums.get("pass", 0), failed, sums.get("skipped", 0) + sums.get("todo", 0)


def _jest(text: str) -> Numbers:
    for line in re.findall(r"^Tests:\s+(.*\d+ total)", text, re.MULTILINE):
        yield _words(line, "passed", "failed", "skipped|todo")


def _vitest(text: str) -> Numbers:
    for line in re.findall(r"^\s*Tests\s+(.*\(\d+\)|no tests)", text, re.MULTILINE):
        yield _words(line, "passed", "failed", "skipped|todo")


def _words_per_line(passed: str, failed: str, skipped: str, needed: str) -> Any:
    """A reader of summaries whose numbers stand on lines of their own, such as mocha's."""

    def parse(text: str) -> Numbers:
        lines = re.findall(rf"^\s*[✔✓✘✖]?\s*\d+ (?:{passed}|{failed}|{skipped})\b.*$", text, re.MULTILINE)
        if re.search(needed, text, re.MULTILINE):
            yield _words("\n".join(lines), passed, failed, skipped)

    return parse


def _totals(pattern: str, order: str) -> Any:
    """A reader of lines with numbers in this order: `p`assed, `f`ailed, `s`kipped, `t`otal."""

    def parse(text: str) -> Numbers:
        for match in re.finditer(pattern, text, re.MULTILINE):
            numbers = dict.fromkeys("pfst", 0)
            for at, letter in enumerate(order, 1):
                numbers[letter] += int(match[at] or 0)
            passed = numbers["p"] or numbers["t"] - numbers["f"] - numbers["s"]
            yield passed, numbers["f"], numbers["s"]

    return parse


def _tap(text: str) -> Numbers:
    if re.search(r"^(?:TAP version \d+|1\.\.\d+)", text, re.MULTILINE):
        tests = re.findall(r"^(not )?ok\b(.*)$", text, re.MULTILINE)
        skipped = sum(bool(re.search(r"# (?:skip|todo)", rest, re.IGNORECASE)) for _, rest in tests)
        failed = sum(bool(bad) and not re.search(r"# todo", rest, re.IGNORECASE) for bad, rest in tests)
        yield len(tests) - failed - skipped, failed, skipped


_KINDS = (
    _pytest_line,
    _unittest_line,
    _cargo_line,
    _node_lines,
    _jest,
    _vitest,
    _words_per_line("passing", "failing", "pending", r"^\s*\d+ passing\b"),  # mocha
    _words_per_line("pass", "fail", "skip", r"^Ran \d+ tests? across"),  # bun
    _words_per_line("tests? passed", "tests? failed", "tests? skipped", r"^\s*\d+ tests? (?:passed|failed)"),  # ava
    _totals(
        r"^(?:ok|FAILED) \| (\d+) passed(?: \(.*?\))? \| (\d+) failed(?: \(.*?\))?(?: \| (\d+) ignored)?", "pfs"
    ),  # deno
    _totals(r"^(?:\[\w+\] )?Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)\s*$", "tffs"),  # maven
    _totals(r"^\d+% tests passed, (\d+) tests? failed out of (\d+)", "ft"),  # ctest
    _totals(r"^(?:\d+ doctests?, )?(\d+) tests?, (\d+) failures?(?:, (\d+) (?:skipped|excluded))?", "tfs"),  # mix
    _totals(r"^(\d+) examples?, (\d+) failures?(?:, (\d+) pending)?", "tfs"),  # rspec
    _totals(r"^(\d+) runs, \d+ assertions, (\d+) failures, (\d+) errors, (\d+) skips", "tffs"),  # minitest
    _totals(r"^OK \((\d+) tests?, \d+ assertions?\)", "p"),  # phpunit
    _totals(r"\b(\d+)/(\d+) tests passed", "pt"),  # zig
    _totals(r"^\[  PASSED  \] (\d+) tests?\.", "p"),  # googletest
    _totals(r"^Files=\d+, Tests=(\d+)", "t"),  # prove
    _tap,
)


def reports(directory: Path, since: float) -> Results | None:
    """The results in the JUnit reports that Maven and Gradle have written since then; None if there are none."""
    names: Names = {}
    for pattern in ("**/build/test-results/*/*.xml", "**/target/surefire-reports/*.xml"):
        for file in directory.glob(pattern):
            if file.stat().st_mtime >= since - 2:  # file systems round
                names.update(_junit(file) or {})
    return of_names(names) if names else None
