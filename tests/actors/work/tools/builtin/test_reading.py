"""fs_cat, fs_read and fs_ls: exact where they can be, bounded where they must be."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest
from support.messages import fragment, says

from callboard.actors.work.tools.builtin import reading
from callboard.protocol.errors import ToolFailed

if TYPE_CHECKING:
    from .conftest import Bench

TEN = "".join(f"line {number}\n" for number in range(1, 11))


async def test_cat_gives_a_file_as_it_is(call: Bench) -> None:
    for text in ("a\nb\n", "no newline", "crlf\r\n", " \t\n\n", "ü – 漢\n"):
        call.file("x", text)
        assert await call("fs_cat", path="x") == text


async def test_an_empty_file_is_said_to_be_empty(call: Bench) -> None:
    call.file("x")
    assert await call("fs_cat", path="x") == await call("fs_read", path="x") == "(the file is empty)"


async def test_read_numbers_the_lines_from_offset_for_limit_lines(call: Bench) -> None:
    call.file("x", TEN)
    text = await call("fs_read", path="x", offset=5, limit=2)
    assert text == "     5\tline 5\n     6\tline 6\n[lines 5-6; to read on, use offset 7]"


async def test_the_last_lines_come_without_a_note(call: Bench) -> None:
    call.file("x", TEN)
    assert await call("fs_read", path="x", offset=9, limit=2) == "     9\tline 9\n    10\tline 10"
    assert await call("fs_cat", path="x", offset=9, limit=50) == "line 9\nline 10\n"


async def test_cat_takes_offset_and_limit_too(call: Bench) -> None:
    call.file("x", TEN)
    assert await call("fs_cat", path="x", offset=3, limit=1) == "line 3\n[lines 3-3; to read on, use offset 4]"


async def test_numbers_may_be_written_as_floats(call: Bench) -> None:
    call.file("x", TEN)
    assert await call("fs_read", path="x", offset=10.0, limit=2.0) == "    10\tline 10"


async def test_an_offset_beyond_the_end_says_how_many_lines_there_are(call: Bench) -> None:
    call.file("x", TEN)
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.reading._part.4", shown="x", number=10, offset=11)):
        await call("fs_read", path="x", offset=11)


async def test_a_large_file_is_cut_and_can_be_read_on_from_the_note(call: Bench) -> None:
    lines = [f"{number:07}{'x' * 100}\n" for number in range(3000)]
    call.file("x", "".join(lines))
    text = await call("fs_cat", path="x")
    assert len(text) < reading.RESULT + 200
    *shown, note = text.split("\n")
    assert f"offset {len(shown) + 1}]" in note
    rest = await call("fs_cat", path="x", offset=len(shown) + 1, limit=1)
    assert rest.startswith(lines[len(shown)])


async def test_read_shows_2000_lines_at_most_unless_told(call: Bench) -> None:
    call.file("x", "a\n" * 2001)
    text = await call("fs_read", path="x")
    assert text.endswith(fragment("work.tools.builtin.reading._part", offset="1", number="2000", number_2="2001"))


async def test_one_endless_line_is_cut_and_those_after_it_are_read(call: Bench) -> None:
    call.file("x", "a" * 5_000_000 + "\nsecond\n")
    first, second = (await call("fs_read", path="x")).split("\n")
    assert first.endswith("[line cut after 2000 bytes]")
    assert len(first) < 2100
    assert second == "     2\tsecond"


@pytest.mark.parametrize("over", [-1, 0, 1, 2, 3])
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
async def test_lines_around_the_width_are_cut_only_if_they_are_longer(call: Bench, over: int, end: str) -> None:
    call.file("x", "a" * (reading.WIDTH + over) + end)
    text = await call("fs_read", path="x")
    assert ("line cut" in text) == (over > 0)
    assert text.count("a" * reading.WIDTH) == (1 if over >= 0 else 0)


async def test_a_binary_file_is_told_not_shown(call: Bench) -> None:
    call.file("x", b"\x7fELF\0\0\0")
    for tool in ("fs_cat", "fs_read"):
        with pytest.raises(ToolFailed, match=says("work.tools.builtin.reading.read_part", shown="x", size=7)):
            await call(tool, path="x")


async def test_bytes_that_are_no_utf_8_are_shown_as_such(call: Bench) -> None:
    call.file("x", b"caf\xe9\n")
    assert await call("fs_cat", path="x") == "caf\ufffd\n"


async def test_a_directory_is_no_file(call: Bench) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths.regular")):
        await call("fs_cat", path=".")


async def test_ls_sorts_and_marks_directories_and_links(call: Bench) -> None:
    call.file("b.txt")
    call.file("a/x")
    (call.project / "link").symlink_to("b.txt")
    assert await call("fs_ls") == "a/\nb.txt\nlink -> b.txt"
    assert await call("fs_ls", path="a") == "x"
    call.file("a/x").unlink()
    assert re.fullmatch(says("work.tools.builtin.reading._listed.2"), await call("fs_ls", path="a"))


async def test_ls_is_cut(call: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ENTRIES", 3)
    for number in range(5):
        call.file(f"f{number}")
    assert await call("fs_ls") == "f0\nf1\nf2\n[cut: 2 more]"


async def test_ls_of_a_file_says_so(call: Bench) -> None:
    call.file("x", "123")
    assert re.fullmatch(says("work.tools.builtin.reading._listed", name="x", st_size=3), await call("fs_ls", path="x"))


async def test_names_that_are_no_text_are_listed(call: Bench) -> None:
    os.close(os.open(os.fsencode(call.project) + b"/\xff\n", os.O_CREAT | os.O_WRONLY))
    assert "\ufffd" in await call("fs_ls")
