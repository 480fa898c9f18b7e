"""PDF, in its own process."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from support.messages import says

from callboard.actors.work.knowledge.reading import read
from callboard.actors.work.knowledge.reading.limits import Bounds, CantRead
from callboard.supervisors.process import Completed

if TYPE_CHECKING:
    from .conftest import Reader

pypdf = pytest.importorskip("pypdf")


def made(*pages: str, title: str = "", password: str = "") -> bytes:
    """A PDF with a line on each page."""
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = pypdf.PdfWriter()
    font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    named = DictionaryObject({NameObject(key): NameObject(value) for key, value in font.items()})
    for text in pages:
        page = writer.add_blank_page(300, 300)
        fonts = DictionaryObject({NameObject("/F1"): named})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode() if text else b"")
        page[NameObject("/Contents")] = stream
    if title:
        writer.add_metadata({"/Title": title})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


async def test_all_pages_are_read_whatever_the_file_is_called(reader: Reader) -> None:
    document = await reader.one(made("First page", "Second page", title="Über"), "paper.md")
    assert (document.kind, document.title, document.text) == ("pdf", "Über", "First page\n\nSecond page")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (made(""), says("work.knowledge.reading.read.worker_error.4", pages="1 page")),
        (made("secret", password="x"), says("work.knowledge.reading.workers.pdf_text.main")),
        (made("cut off")[:200], "the PDF file can't be read"),
        (b"%PDF-1.7 and nothing more", "the PDF file can't be read"),
    ],
)
async def test_what_can_t_be_read_is_told(reader: Reader, data: bytes, why: str) -> None:
    with pytest.raises(CantRead, match=why):
        await reader(data, "a.pdf")


async def test_more_text_than_is_wanted_is_refused(reader: Reader) -> None:
    reader.bounds = Bounds(text=50)
    with pytest.raises(CantRead, match=says("work.knowledge.reading.limits")):
        await reader(made("x" * 200), "a.pdf")


def test_without_pypdf_it_is_said_what_to_install() -> None:
    ended = Completed(status=3, signal=None, stdout=b"", stderr_tail="", truncated=False)
    with pytest.raises(CantRead, match=says("work.knowledge.reading.read.worker_error")):
        read.worker_error(ended)


def test_a_reader_that_dies_costs_one_file() -> None:
    ended = Completed(status=None, signal=9, stdout=b"", stderr_tail="", truncated=False)
    with pytest.raises(CantRead, match=says("work.knowledge.reading.read.worker_error.3")):
        read.worker_error(ended)
