"""Bytes to documents. What the bytes are decides how they are read; their name decides only what bytes can't tell.

So a PDF that is called `.md` is read as a PDF, and a picture that is called `.md` is refused as a picture. HTML and
Office texts become Markdown, sheets become CSV, everything else stays what it is.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.knowledge import Document
from ....io.html.markdown import TooLong
from ....io.html.page import page_of
from . import kinds
from .bounds import TOO_MUCH, Bounds, CantRead, Watch, megabytes
from .encodings import binary, cleaned, declared_inside, decoded

if TYPE_CHECKING:
    from .....supervisors.actor import Actor

MARKDOWN = "markdown"
Part = tuple[str, str, str]
"""Text, kind and title of a document."""

_OLE = b"\xd0\xcf\x11\xe0"
"""How the Office files of before 2007 begin, and those of today that are encrypted."""


class Raw(msgspec.Struct, frozen=True, kw_only=True):
    """What was got of a source.

    Attributes:
        source: its name, for the documents.
        data: its bytes.
        path: its path or the path of its URL, whose ending may tell the kind.
        media: the media type that a server gave, if one did.
        charset: the encoding that a server gave.
        within: of a page, the id of the element that it is about; the page is taken whole if there is none.
    """

    source: str
    data: bytes
    path: str
    media: str = ""
    charset: str = ""
    within: str = ""


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a source.

    Attributes:
        digest: SHA-256 of its bytes.
        documents: usually one; a workbook is one for each of its sheets.
        links: where a page leads.
        kept_out: whether a page wants not to be found by those who crawl.
    """

    digest: str
    documents: tuple[Document, ...] = ()
    links: tuple[str, ...] = ()
    kept_out: bool = False


async def read(me: Actor, raw: Raw, bounds: Bounds, limiter: trio.CapacityLimiter) -> Contents:
    """Read a source, in a thread or, where that is not safe enough, in a process.

    Args:
        me: owner of that process.
        limiter: of the threads.

    Raises:
        CantRead: it can't be read; the text says why.
    """
    if raw.data.startswith(b"%PDF-"):
        from .pdf import pdf_text

        check_size(len(raw.data), "pdf", bounds)
        async with limiter:
            title, text = await pdf_text(me, raw.data, bounds)
        return await trio.to_thread.run_sync(lambda: _contents(raw, (text, "pdf", title)), limiter=limiter)
    return await trio.to_thread.run_sync(
        lambda: _read_here(raw, bounds, Watch(bounds.seconds)), limiter=limiter, abandon_on_cancel=True
    )


def check_size(size: int, kind: str, bounds: Bounds) -> None:
    """Refuse what is too large before it is read.

    Raises:
        CantRead: it is.
    """
    most = bounds.packed if kind in kinds.PACKED else bounds.text
    if size > most:
        raise CantRead(f"it is too large: {megabytes(size)}, and at most {megabytes(most)} are read of one source")


def _read_here(raw: Raw, bounds: Bounds, watch: Watch) -> Contents:
    try:
        return _read(raw, bounds, watch)
    except TooLong:
        raise CantRead(TOO_MUCH) from None


def _read(raw: Raw, bounds: Bounds, watch: Watch) -> Contents:
    if raw.data.startswith(b"PK\x03\x04"):
        check_size(len(raw.data), "docx", bounds)
        return _contents(raw, *_office(raw, bounds, watch))
    if raw.data.startswith(_OLE):
        raise CantRead(
            "it is an Office file from before 2007, or an encrypted one; name a loader for it, or convert it"
        )
    said = kinds.by_media(raw.media) if raw.media and raw.media != "application/octet-stream" else ""
    kind = said if said not in ("", "text") else kinds.by_name(raw.path)
    if what := binary(raw.data):
        raise CantRead(f"it is {what}, not text")
    if kind in kinds.PACKED:
        raise CantRead(f"it is called a {kind} file, but is none")
    check_size(len(raw.data), kind, bounds)
    if kind == "text" and _looks_like_html(raw.data):
        kind = "html"
    declared = raw.charset or (declared_inside(raw.data) if kind in ("html", "code:xml") else "")
    text = decoded(raw.data, declared)
    if kind == "html":
        return _page(raw, text, bounds, watch)
    if kind == "json" and raw.path.lower().endswith(".ipynb"):
        from .notebook import markdown_of

        if markdown := markdown_of(text):
            kind, text = MARKDOWN, markdown
    return _contents(raw, (text, kind, ""))


def _page(raw: Raw, text: str, bounds: Bounds, watch: Watch) -> Contents:
    page = page_of(text, raw.source, bounds.text, watch.look, within=raw.within)
    contents = _contents(raw, (page.text, MARKDOWN, page.title))
    return msgspec.structs.replace(contents, links=page.links, kept_out=page.kept_out)


def _office(raw: Raw, bounds: Bounds, watch: Watch) -> list[Part]:
    """By what is in the archive, whatever it is called."""
    from .office import open_document, sheets, slides, word
    from .office.archive import Archive
    from .office.xml import Relations

    usual = ("word/document.xml", "ppt/presentation.xml", "xl/workbook.xml")
    with Archive(raw.data, bounds, watch) as archive:
        main = Relations(archive, "").by_type.get("officeDocument", "")
        part = next((name for name in (main, *usual) if name in archive.names), "")
        if part.startswith("word/"):
            return [(word.markdown_of(archive, part, bounds.text), MARKDOWN, "")]
        if part.startswith("ppt/"):
            return [(slides.markdown_of(archive, part, bounds.text), MARKDOWN, "")]
        if part.startswith("xl/"):
            found = sheets.sheets_of(archive, part, bounds.text)
            return [(text, "csv", name) for name, text in found]
        if "content.xml" in archive.names:
            return [(open_document.markdown_of(archive, bounds.text), MARKDOWN, "")]
    raise CantRead("it is an archive, not a document; unpack it, or name a loader for it")


def _contents(raw: Raw, *parts: Part) -> Contents:
    digest = hashlib.sha256(raw.data).hexdigest()
    documents = [
        Document(source=raw.source, text=cleaned(text), kind=kind, title=cleaned(title), digest=digest)
        for text, kind, title in parts
    ]
    return Contents(digest=digest, documents=tuple(documents))


def _looks_like_html(data: bytes) -> bool:
    return data[:200].lstrip().lower().startswith((b"<!doctype html", b"<html"))
