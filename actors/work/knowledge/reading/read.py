"""Conversion of bytes to documents. The contents decide the format; the name decides only if they can't.

So a PDF that is named `.md` is read as a PDF, and a picture that is named `.md` is refused. HTML and Office texts
become Markdown, sheets become CSV, and all other text is unchanged.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from .....protocol.decoding import decode_json
from .....protocol.errors import ProcessError, TimedOut
from .....protocol.knowledge import Document
from .....supervisors.installation import install_command
from ....io.encodings import binary, cleaned, declared_inside, decoded
from ....io.html import TextTooLong, page_of
from . import kinds
from .limits import TOO_MUCH, Bounds, CantRead, megabytes, watch

if TYPE_CHECKING:
    from .....supervisors.actor import Actor
    from .....supervisors.process import Completed

MARKDOWN = "markdown"
Part = tuple[str, str, str]
"""Text, kind and title of a document."""

_HTML = (b"<!doctype html", b"<html")
_OLE = b"\xd0\xcf\x11\xe0"
"""First bytes of Office files from before 2007, and of current ones that are encrypted."""


class RawDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a source, with hints about their format.

    Attributes:
        source: name of the source, for the documents.
        data: the bytes.
        path: its path or the path of its URL, whose ending is a hint.
        media: media type from the server, if any.
        charset: encoding from the server.
        within: for a page, id of the element with the main content; the whole page is used if there is none.
    """

    source: str
    data: bytes
    path: str
    media: str = ""
    charset: str = ""
    within: str = ""


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """Documents of a source.

    Attributes:
        digest: SHA-256 of its bytes.
        documents: usually one; a workbook has one for each of its sheets.
        links: links of a page.
        kept_out: the page forbids indexing by crawlers.
    """

    digest: str
    documents: tuple[Document, ...] = ()
    links: tuple[str, ...] = ()
    kept_out: bool = False


async def read(me: Actor, raw: RawDocument, bounds: Bounds, limiter: trio.CapacityLimiter) -> Contents:
    """Read a source in a thread, or in a process if a thread is not safe enough.

    Args:
        me: owner of that process.
        limiter: limiter of the threads.

    Raises:
        CantRead: the source can't be read; the text says why.
    """
    if raw.data.startswith(b"%PDF-"):
        check_size(len(raw.data), "pdf", bounds)
        async with limiter:
            title, text = await pdf_text(me, raw.data, bounds)
        return await trio.to_thread.run_sync(lambda: _contents(raw, (text, "pdf", title)), limiter=limiter)
    try:
        return await trio.to_thread.run_sync(
            lambda: _read(raw, bounds, watch(bounds.seconds)), limiter=limiter, abandon_on_cancel=True
        )
    except TextTooLong:
        raise CantRead(TOO_MUCH) from None


def check_size(size: int, kind: str, bounds: Bounds) -> None:
    """Check the size of a source before it is read.

    Raises:
        CantRead: the source is too large.
    """
    most = bounds.packed if kind in kinds.PACKED else bounds.text
    if size > most:
        raise CantRead(
            f"the source is too large: {megabytes(size)}, and at most {megabytes(most)} are read of one source"
        )


def _read(raw: RawDocument, bounds: Bounds, look: Callable[[], None]) -> Contents:
    if raw.data.startswith(b"PK\x03\x04"):
        check_size(len(raw.data), "docx", bounds)
        return _contents(raw, *_office(raw, bounds, look))
    if raw.data.startswith(_OLE):
        raise CantRead(
            "the file is an Office file from before 2007, or an encrypted one; convert it, or define a "
            "loader for it in `document_loaders`"
        )
    said = kinds.by_media(raw.media) if raw.media and raw.media != "application/octet-stream" else ""
    kind = said if said not in ("", "text") else kinds.by_name(raw.path)
    if what := binary(raw.data):
        raise CantRead(f"the file is {what}, not text")
    if kind in kinds.PACKED:
        raise CantRead(f"the name of the file is that of a {kind} file, but its content is not")
    check_size(len(raw.data), kind, bounds)
    if kind == "text" and raw.data[:200].lstrip().lower().startswith(_HTML):
        kind = "html"
    declared = raw.charset or (declared_inside(raw.data) if kind in ("html", "code:xml") else "")
    text = decoded(raw.data, declared)
    if kind == "html":
        return _page(raw, text, bounds, look)
    if kind == "json" and raw.path.lower().endswith(".ipynb") and (markdown := markdown_of(text)):
        kind, text = MARKDOWN, markdown
    return _contents(raw, (text, kind, ""))


def _page(raw: RawDocument, text: str, bounds: Bounds, look: Callable[[], None]) -> Contents:
    page = page_of(text, raw.source, bounds.text, look, within=raw.within)
    contents = _contents(raw, (page.text, MARKDOWN, page.title))
    return msgspec.structs.replace(contents, links=page.links, kept_out=page.kept_out)


def _office(raw: RawDocument, bounds: Bounds, look: Callable[[], None]) -> list[Part]:
    """Convert by the parts in the archive, regardless of the file name."""
    from . import office
    from .office import Archive, Relations

    usual = ("word/document.xml", "ppt/presentation.xml", "xl/workbook.xml")
    archive = Archive(raw.data, bounds, look)
    main = Relations(archive, "").by_type.get("officeDocument", "")
    part = next((name for name in (main, *usual) if name in archive.names), "")
    if part.startswith("word/"):
        return [(office.word(archive, part, bounds.text), MARKDOWN, "")]
    if part.startswith("ppt/"):
        return [(office.slides(archive, part, bounds.text), MARKDOWN, "")]
    if part.startswith("xl/"):
        return [(text, "csv", name) for name, text in office.sheets_of(archive, part, bounds.text)]
    if "content.xml" in archive.names:
        return [(office.open_document(archive, bounds.text), MARKDOWN, "")]
    raise CantRead("the file is an archive, not a document; unpack it, or define a loader for it in `document_loaders`")


def _contents(raw: RawDocument, *parts: Part) -> Contents:
    digest = hashlib.sha256(raw.data).hexdigest()
    documents = [
        Document(source=raw.source, text=cleaned(text), kind=kind, title=cleaned(title), digest=digest)
        for text, kind, title in parts
    ]
    return Contents(digest=digest, documents=tuple(documents))


# --- Jupyter notebooks: text and code, without outputs (mostly pictures)


class _Cell(msgspec.Struct):
    cell_type: str
    source: str | list[str] = ""


class _Notebook(msgspec.Struct):
    cells: list[_Cell]
    metadata: dict[str, Any] = {}


def markdown_of(text: str) -> str:
    """Return the notebook as Markdown; "" if its format is unknown."""
    try:
        book = decode_json(text, _Notebook)
    except (msgspec.DecodeError, RecursionError):
        return ""
    kernel = book.metadata.get("kernelspec")
    language = str(kernel.get("language", "python")) if isinstance(kernel, dict) else "python"
    parts: list[str] = []
    for cell in book.cells:
        source = cell.source if isinstance(cell.source, str) else "".join(cell.source)
        if source.strip():
            parts.append(f"```{language}\n{source}\n```" if cell.cell_type == "code" else source)
    return "\n\n".join(parts)


# --- PDF, with pypdf (of the extra `docs`) in a separate process
#
# A PDF can keep any reader busy for hours or fill the memory, and a thread can't be stopped. The process has limits on
# both, and a crash of it does not harm this process.

WORKER = Path(__file__).with_name("workers") / "pdf_text.py"
MEGABYTES = 2048


class WorkerHead(msgspec.Struct, frozen=True):
    """First line of the PDF worker's output: title and number of pages."""

    title: str = ""
    pages: int = 0
    empty: bool = False


async def pdf_text(me: Actor, data: bytes, bounds: Bounds) -> tuple[str, str]:
    """Return title and text of a PDF.

    Raises:
        CantRead: the PDF has no text, is too large, takes too long, is broken, or pypdf is not installed.
    """
    from .....supervisors.process import run_process

    try:
        done = await run_process(
            me,
            [sys.executable, "-I", "-B", str(WORKER), str(math.ceil(bounds.seconds)), str(MEGABYTES)],
            name="pdf",
            input=data,
            output_limit=bounds.text,
            on_overflow="kill",
            timeout=bounds.seconds,
        )
    except TimedOut:
        raise CantRead(f"reading the PDF file took more than {bounds.seconds:g} s") from None
    except ProcessError as error:
        raise CantRead(f"the process that reads PDF files could not be started: {error}") from error
    return worker_error(done)


def worker_error(done: Completed) -> tuple[str, str]:
    """Return the worker's result, or raise CantRead for its failure."""
    if done.truncated:
        raise CantRead(TOO_MUCH)
    if done.status == 3:
        raise CantRead(
            f"reading PDF files needs pypdf; run: {install_command('docs')} (or define a loader for `pdf` in "
            "`document_loaders`)"
        )
    if done.status == 4:
        raise CantRead(f"the PDF file can't be read: {done.stdout.decode(errors='replace')}")
    if done.status != 0:
        raise CantRead(f"the process that read the PDF file crashed (status {done.status}, signal {done.signal})")
    line, _, text = done.stdout.partition(b"\n")
    head = decode_json(line, WorkerHead)
    if head.empty:
        pages = "1 page" if head.pages == 1 else f"{head.pages} pages"
        raise CantRead(
            f"the PDF file has no text in its {pages}, perhaps only scanned images; define a loader with OCR "
            "for `pdf` in `document_loaders`"
        )
    return head.title, text.decode()
