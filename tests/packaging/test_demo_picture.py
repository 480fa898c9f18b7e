"""docs/pictures/demo.svg shows the demo from its first line to its last, and needs nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from callboard.cli.commands.demo import NEXT, PREPARED

from .demo_picture import PICTURE, recorded, rows_of

SVG = "{http://www.w3.org/2000/svg}"


def words() -> str:
    """What is written on it."""
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", PICTURE.read_text())
    text = " ".join(" ".join(texts).replace("\u00a0", " ").split())
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def test_it_shows_the_kill_the_resume_and_the_end() -> None:
    text = words()
    assert PREPARED in text
    for shown in ("kill -9 ", "callboard resume run-", "+ return (ordered", "all 4 passed", "local:smollm2", "$0.0"):
        assert shown in text
    for command, about in NEXT:
        assert command.partition(" ")[0] in text
        assert about in text


def test_each_screen_is_shown_in_turn_and_none_needs_anything_from_elsewhere() -> None:
    data = PICTURE.read_text()
    assert len(data) < 200_000
    assert not re.search(r'<script|<image|@import|url\(|foreignObject|href="[^#]', data)
    tree = ET.fromstring(data)
    ids = {group.get("id") for group in tree.iter(f"{SVG}g")}
    assert {str(use.get("href")).removeprefix("#") for use in tree.iter(f"{SVG}use")} <= ids
    begins = []
    for each in tree.iter(f"{SVG}animate"):
        times, values = str(each.get("keyTimes")).split(";"), str(each.get("values")).split(";")
        assert len(times) == len(values)
        begins.append(float(times[values.index("visible")]))
    assert begins == sorted(begins)
    assert len(begins) > 10


@pytest.mark.soak
def test_it_is_what_the_program_shows(tmp_path: Path) -> None:
    last = " ".join(" ".join(rows_of(recorded(tmp_path)[-1][1])[-4:]).split())
    ids = re.compile(r"run-[0-9a-f]+")
    assert ids.sub("", last) in ids.sub("", words())
