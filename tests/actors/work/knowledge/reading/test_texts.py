"""Text of every kind: what it is, which letters it is in, and what is no text."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest
from support.messages import says

from callboard.actors.work.knowledge.reading.kinds import by_media, by_name
from callboard.actors.work.knowledge.reading.limits import Bounds, CantRead

if TYPE_CHECKING:
    from .conftest import Reader


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a/b.md", "markdown"),
        ("B.HTML", "html"),
        ("x.py", "code:python"),
        ("x.rs", "code:rust"),
        ("x.tsx", "code:typescript"),
        ("src/Makefile", "code:make"),
        ("Dockerfile", "code:dockerfile"),
        ("t.csv", "csv"),
        ("t.tsv", "tsv"),
        ("t.json", "json"),
        ("t.ndjson", "jsonl"),
        ("README", "text"),
        (".gitignore", "text"),
        ("x.unheard", "text"),
    ],
)
def test_the_name_tells_the_kind(name: str, kind: str) -> None:
    assert by_name(name) == kind


def test_the_media_type_tells_the_kind() -> None:
    assert by_media("text/html") == "html"
    assert by_media("application/ld+json") == "json"
    assert by_media("text/x-unheard") == "text"
    assert by_media("image/png") == ""


async def test_a_document_says_all_about_itself(reader: Reader) -> None:
    document = await reader.one(b"# Title\r\ntext", "docs/a.md")
    assert (document.source, document.kind, document.text) == ("docs/a.md", "markdown", "# Title\ntext")
    assert document.digest == hashlib.sha256(b"# Title\r\ntext").hexdigest()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a PNG image"),
        (b"\x7fELF\x02\x01\x01\0\0", "a program"),
        (bytes(range(256)) * 40, "binary data"),
        (b"text at first\0and then not", "binary data"),
        (b"\x01\x02\x03\x04\x05\x06\x0e\x0f" * 20, "binary data"),
    ],
)
async def test_what_is_called_markdown_and_is_none_is_refused(reader: Reader, data: bytes, what: str) -> None:
    with pytest.raises(CantRead, match=f"the file is {what}, not text"):
        await reader(data, "notes.md")


async def test_text_that_begins_as_a_picture_does_is_text(reader: Reader) -> None:
    assert (await reader.one(b"RIFF is a format, BZh is another")).kind == "text"


async def test_too_much_text_is_refused(reader: Reader) -> None:
    reader.bounds = Bounds(text=1000)
    assert (await reader.one(b"x" * 1000)).text == "x" * 1000
    with pytest.raises(CantRead, match=says("work.knowledge.reading.read.check_size")):
        await reader(b"x" * 1001)


async def test_what_is_called_a_pdf_and_is_text_is_refused(reader: Reader) -> None:
    with pytest.raises(CantRead, match=says("work.knowledge.reading.read._read.3", kind="pdf")):
        await reader(b"hello", "a.pdf")


async def test_an_office_file_of_old_is_refused_with_a_way_out(reader: Reader) -> None:
    with pytest.raises(CantRead, match=says("work.knowledge.reading.read._read")):
        await reader(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 100, "a.doc")


async def test_what_a_server_says_counts_more_than_the_name(reader: Reader) -> None:
    assert (await reader.one(b"<p>x</p>", "/index.php", media="text/html")).text == "x"
    assert (await reader.one(b"# x", "/readme.md", media="text/plain")).kind == "markdown"
    assert (await reader.one("тест".encode("cp1251"), "/a", media="text/plain", charset="cp1251")).text == "тест"


async def test_a_notebook_is_its_text_and_its_code(reader: Reader) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {"cell_type": "code", "source": "x = 1", "outputs": [{"data": {"image/png": "AAAA"}}]},
        {"cell_type": "code", "source": ""},
    ]
    document = await reader.one(json.dumps({"cells": cells, "metadata": {}}).encode(), "a.ipynb")
    assert (document.kind, document.text) == ("markdown", "# Title\nwords\n\n```python\nx = 1\n```")
    assert (await reader.one(b'{"cells": 1}', "b.ipynb")).kind == "json"
