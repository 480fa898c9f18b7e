"""Office files: their text in Markdown, sheets in CSV, and what bombs come to."""

from __future__ import annotations

import contextlib
import io
import random
import zipfile
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from support.messages import says

from callboard.actors.work.knowledge.reading.limits import Bounds, CantRead

if TYPE_CHECKING:
    from .conftest import Reader

Packed = Callable[[dict[str, str | bytes]], bytes]

RELATIONS = "<Relationships>{}</Relationships>"
TYPES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def related(**targets: str) -> str:
    """A `.rels` part: `id="type target"`."""
    lines = [
        f'<Relationship Id="{id}" Type="{TYPES}/{each.split()[0]}" Target="{each.split()[1]}"/>'
        for id, each in targets.items()
    ]
    return RELATIONS.format("".join(lines))


def word(body: str, **others: str) -> dict[str, str | bytes]:
    """The parts of a .docx."""
    return {
        "[Content_Types].xml": "<Types/>",
        "word/document.xml": f'<w:document xmlns:w="w" xmlns:mc="mc"><w:body>{body}</w:body></w:document>',
        "word/_rels/document.xml.rels": related(r1="styles styles.xml", r2="footnotes footnotes.xml"),
        "word/styles.xml": '<w:styles xmlns:w="w"><w:style w:styleId="berschrift2"><w:name w:val="heading 2"/>'
        "</w:style></w:styles>",
        **others,
    }


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


async def test_a_word_document_keeps_headings_lists_tables_and_notes(reader: Reader, packed: Packed) -> None:
    body = (
        paragraph("Title", '<w:pStyle w:val="berschrift2"/>')
        + "<w:p><w:r><w:t>Some </w:t></w:r><w:r><w:t>words</w:t><w:tab/><w:t>apart</w:t></w:r>"
        + "<w:r><w:delText>gone</w:delText></w:r></w:p>"
        + paragraph("one", "<w:numPr/>")
        + paragraph("two", "<w:numPr/>")
        + "<w:p/>"
        + f"<w:tbl><w:tr><w:tc>{paragraph('k')}</w:tc><w:tc><w:p/></w:tc>"
        + f"<w:tc>{paragraph('v')}{paragraph('w')}</w:tc></w:tr></w:tbl>"
        + "<mc:AlternateContent><mc:Choice><w:p><w:r><w:t>box</w:t></w:r></w:p></mc:Choice>"
        + "<mc:Fallback><w:p><w:r><w:t>box</w:t></w:r></w:p></mc:Fallback></mc:AlternateContent>"
    )
    notes = f'<w:footnotes xmlns:w="w">{paragraph("a note")}</w:footnotes>'
    document = await reader.one(packed(word(body, **{"word/footnotes.xml": notes})), "a.docx")
    assert document.kind == "markdown"
    assert (
        document.text
        == "## Title\n\nSome words apart\n\n- one\n- two\n\n| k |  | v w |\n| --- | --- | --- |\n\nbox\n\na note"
    )


async def test_slides_come_in_the_order_in_which_they_are_shown(reader: Reader, packed: Packed) -> None:
    def slide(title: str, text: str) -> str:
        shapes = f'<p:sp><p:nvPr><p:ph type="title"/></p:nvPr><a:p><a:r><a:t>{title}</a:t></a:r></a:p></p:sp>'
        return f'<p:sld xmlns:p="p" xmlns:a="a">{shapes}<p:sp><a:p><a:t>{text}</a:t></a:p></p:sp></p:sld>'

    order = '<p:sldId id="256" r:id="rB"/><p:sldId r:id="rA" id="257"/>'
    parts: dict[str, str | bytes] = {
        "ppt/presentation.xml": f'<p:pres xmlns:p="p" xmlns:r="r"><p:sldIdLst>{order}</p:sldIdLst></p:pres>',
        "ppt/_rels/presentation.xml.rels": related(rA="slide slides/slide1.xml", rB="slide /ppt/slides/slide2.xml"),
        "ppt/slides/slide1.xml": slide("Last", "bye"),
        "ppt/slides/slide2.xml": slide("First", "hello"),
    }
    assert (await reader.one(packed(parts), "a.pptx")).text == "## First\n\nhello\n\n## Last\n\nbye"


async def test_a_workbook_is_a_table_for_each_sheet(reader: Reader, packed: Packed) -> None:
    rows = (
        '<row><c r="A1" t="s"><v>0</v></c><c r="C1" t="inlineStr"><is><t>when</t></is></c></row><row/>'
        '<row><c r="A3"><f>1+1</f><v>2</v></c><c r="B3" t="b"><v>1</v></c><c r="C3" s="1"><v>45292.5</v></c>'
        '<c s="2"><v>45292</v></c><c t="str"><v>a,"b"</v></c></row>'
    )
    parts: dict[str, str | bytes] = {
        "xl/workbook.xml": '<workbook xmlns:r="r"><sheets><sheet name="Data" sheetId="1" r:id="r1"/>'
        '<sheet name="Empty" sheetId="2" r:id="r2"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": related(
            r1="worksheet worksheets/sheet1.xml",
            r2="worksheet worksheets/sheet2.xml",
            r3="sharedStrings sharedStrings.xml",
            r4="styles styles.xml",
        ),
        "xl/sharedStrings.xml": "<sst><si><r><t>na</t></r><r><t>me</t></r><rPh><t>NAME</t></rPh></si></sst>",
        "xl/styles.xml": '<styleSheet><numFmts><numFmt numFmtId="164" formatCode="yyyy\\-mm"/></numFmts><cellXfs>'
        '<xf numFmtId="0"/><xf numFmtId="22"/><xf numFmtId="164"/></cellXfs></styleSheet>',
        "xl/worksheets/sheet1.xml": f"<worksheet><sheetData>{rows}</sheetData></worksheet>",
        "xl/worksheets/sheet2.xml": "<worksheet><sheetData/></worksheet>",
    }
    document = await reader.one(packed(parts), "a.xlsx")
    assert (document.kind, document.title) == ("csv", "Data")
    assert document.text == 'name,,when\n2,TRUE,2024-01-01 12:00:00,2024-01-01,"a,""b"""\n'


async def test_an_open_document_keeps_headings_lists_and_tables(reader: Reader, packed: Packed) -> None:
    body = (
        '<text:h text:outline-level="2">Head</text:h><text:p>a<text:s/>b <text:span>c</text:span></text:p>'
        "<text:list><text:list-item><text:p>one</text:p></text:list-item></text:list>"
        "<table:table><table:table-row><table:table-cell><text:p>k</text:p></table:table-cell></table:table-row></table:table>"
        "<text:tracked-changes><text:p>gone</text:p></text:tracked-changes>"
    )
    content = (
        f'<office:document-content xmlns:office="o" xmlns:text="t" xmlns:table="tb">{body}</office:document-content>'
    )
    document = await reader.one(packed({"mimetype": "x", "content.xml": content}), "a.odt")
    assert document.text == "## Head\n\na b c\n\n- one\n\n| k |\n| --- |"


# --- hostile ones


async def test_a_bomb_is_not_unpacked(reader: Reader, packed: Packed) -> None:
    bomb = packed(word(" " * 20_000_000))
    assert len(bomb) < 100_000
    with pytest.raises(CantRead, match=says("work.knowledge.reading.office.Archive.pieces", ratio=200)):
        await reader(bomb, "a.docx")


async def test_many_parts_together_are_bounded_too(reader: Reader, packed: Packed) -> None:
    reader.bounds = Bounds(unpacked=300_000)
    noise = random.Random(5).randbytes(100_000).hex()
    with pytest.raises(CantRead, match=says("work.knowledge.reading.office.Archive.pieces.2")):
        await reader(packed(word(paragraph(noise), **{"word/footnotes.xml": f"<x>{noise}</x>"})), "a.docx")


async def test_a_size_that_is_a_lie_is_no_help(reader: Reader, packed: Packed) -> None:
    """The archive says that the part is small; what comes out is counted, and more than it said is refused."""
    bomb = bytearray(packed(word(" " * 20_000_000)))
    with zipfile.ZipFile(io.BytesIO(bomb)) as opened:
        true = opened.getinfo("word/document.xml").file_size.to_bytes(4, "little")
    lied = bytes(bomb).replace(true, (10).to_bytes(4, "little"))
    with pytest.raises(CantRead):
        await reader(lied, "a.docx")


async def test_an_archive_of_many_parts_is_not_opened(reader: Reader, packed: Packed) -> None:
    reader.bounds = Bounds(entries=50)
    with pytest.raises(CantRead, match=says("work.knowledge.reading.office.Archive.__init__", entries=50)):
        await reader(packed({f"{number}": "" for number in range(51)}), "a.docx")


async def test_entities_are_refused(reader: Reader, packed: Packed) -> None:
    laughs = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><x>&b;</x>'
    with pytest.raises(CantRead, match=says("work.knowledge.reading.office.stream.refuse")):
        await reader(packed({"word/document.xml": laughs}), "a.docx")


async def test_a_cell_that_is_repeated_for_ever_is_bounded(reader: Reader, packed: Packed) -> None:
    reader.bounds = Bounds(text=100_000)
    rows = '<row><c t="s"><v>0</v></c></row>' * 1000
    parts: dict[str, str | bytes] = {
        "xl/workbook.xml": '<workbook><sheet name="a" id="r1"/></workbook>',
        "xl/_rels/workbook.xml.rels": related(r1="worksheet s.xml", r2="sharedStrings t.xml"),
        "xl/s.xml": f'<s>{rows}<row><c r="XFD2"><v>1</v></c></row></s>',
        "xl/t.xml": f"<sst><si><t>{'x' * 1000}</t></si></sst>",
    }
    with pytest.raises(CantRead, match=says("work.knowledge.reading.limits")):
        await reader(packed(parts), "a.xlsx")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"PK\x03\x04 and nothing more", says("work.knowledge.reading.office.Archive.__init__.2")),
        (b"", says("work.knowledge.reading.read._office")),
        (b"<w:p><w:t>x</w:p>", says("work.knowledge.reading.office.stream")),
    ],
)
async def test_what_is_broken_is_told(reader: Reader, packed: Packed, data: bytes, why: str) -> None:
    if data.startswith(b"<"):
        data = packed({"word/document.xml": data})
    with pytest.raises(CantRead, match=why):
        await reader(data or packed({"a.txt": "text"}), "a.docx")


async def test_bits_turned_over_are_one_clear_error(reader: Reader, packed: Packed) -> None:
    whole = packed(word("".join(paragraph(f"some text {number}") for number in range(200))))
    chance = random.Random(7)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(5):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        with contextlib.suppress(CantRead):
            await reader(bytes(data), "a.docx")


def test_the_archive_s_errors_are_all_known() -> None:
    from callboard.actors.work.knowledge.reading.office import _BROKEN

    assert issubclass(zipfile.BadZipFile, _BROKEN)
    assert issubclass(zlib.error, _BROKEN)
