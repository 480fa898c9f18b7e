"""Property of permissions on commands: an allowed line has no effect outside of what the patterns say.

Random lines are judged, and the allowed ones are executed in a throwaway sandbox that compares files and programs.
Random texts that the parser understands are executed by bash, which must look for the same programs and words.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from support.shell_lines import ALLOWED, MAY_RUN, Sandbox, executed_words, random_line, random_tokens

from callboard.actors.work.tools.rules import weighed
from callboard.actors.work.tools.shell_commands import parse
from callboard.actors.work.tools.shell_parser import FILE, is_known
from callboard.actors.work.tools.shell_rules import judged
from callboard.protocol.permissions import PermissionRule

READERS = weighed(PermissionRule(allow=ALLOWED))
OPEN = weighed(PermissionRule(allow=("*",), deny=("rm *",)))


def check(seed: int, count: int, directory: Path) -> str:
    """Judge and execute lines, and return how many of them there were of each kind."""
    draw = random.Random(seed)
    lines = list(dict.fromkeys(random_line(draw) for _ in range(count)))
    readers = [line for line in lines if judged(READERS, line) == "allow"]
    others = sorted(set(lines) - set(readers))
    open_ = [line for line in others if judged(OPEN, line) == "allow"]
    controls = draw.sample(others, min(len(others), max(20, count // 50)))
    # The control shows that the sandbox sees effects: lines that are not allowed have some.
    executed = list(dict.fromkeys([*readers, *(open_ if count > 5_000 else open_[: count // 20]), *controls]))
    effects = dict(zip(executed, Sandbox(directory).run(executed), strict=True))
    has_effect = {line: bool(found["changed"] or set(found["ran"]) - MAY_RUN) for line, found in effects.items()}
    assert {line: effects[line] for line in readers if has_effect[line]} == {}
    assert [line for line in open_ if line in effects and "rm" in effects[line]["ran"]] == []
    seen = sum(has_effect[line] for line in controls)
    assert seen >= len(controls) / 8
    assert len(readers) >= len(lines) / 6
    return (
        f"{count} drawn, {len(lines)} different, {len(readers)} allowed by the list of readers, {len(open_)} more by "
        f"`allow: *` with a `deny`, {len(executed)} executed, no effect beyond; "
        f"{seen} of {len(controls)} controls have one"
    )


def compare_words(seed: int, count: int, directory: Path) -> int:
    """Compare what bash runs with what the parser reads in random texts; return how many of them are understood."""
    draw = random.Random(seed)
    understood = 0
    for line in (random_tokens(draw) for _ in range(count)):
        parsed = parse(line)
        if parsed.unclear:
            continue
        understood += 1
        commands = [part for each in parsed.commands for part in each.all() if part.marked]
        for words in executed_words(line, directory):
            assert any(may_become(part.marked, words) for part in commands), (line, words)
        written = {write.partition(" ")[2] for each in parsed.commands for part in each.all() for write in part.writes}
        box = directory / "box"
        assert {each.name for each in box.iterdir()} <= written, line
        for each in box.iterdir():
            each.unlink()
    return understood


def may_become(marked: tuple[str, ...], words: list[str]) -> bool:
    """Return True if bash can make these words of the parser's; an unknown word may vanish, or be several."""
    expression = ""
    for word in marked:
        known = re.sub("\x03+", "\x03", "".join(one if is_known(one) else "\x03" for one in word.replace(FILE, "")))
        text = "[^\x02]*(?:\x02[^\x02]*)*".join(map(re.escape, known.split("\x03")))
        expression += f"(?:\x02{text})" + ("" if is_known(word) else "?")
    return re.fullmatch(expression, "".join(f"\x02{word}" for word in words)) is not None


def test_bash_runs_the_words_that_the_parser_reads(tmp_path: Path) -> None:
    assert compare_words(1, 2_000, tmp_path) > 150


@pytest.mark.soak
def test_bash_runs_the_words_that_the_parser_reads_in_many_texts(tmp_path: Path) -> None:
    print(compare_words(2, 100_000, tmp_path), "understood")


@pytest.mark.parametrize("count", [300, pytest.param(1_000, marks=pytest.mark.full)])
def test_an_allowed_line_has_no_effect_beyond_its_patterns(tmp_path: Path, count: int) -> None:
    check(1, count, tmp_path)


@pytest.mark.soak
def test_of_twenty_thousand_lines_none_has_an_effect_beyond_its_patterns(tmp_path: Path) -> None:
    print(check(2, 20_000, tmp_path))
