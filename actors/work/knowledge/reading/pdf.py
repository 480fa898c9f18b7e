"""PDF to text, by pypdf (of the extra `docs`) in a process of its own.

A PDF can keep any reader busy for hours or fill the memory, and a thread can't be stopped in the middle. The process
has limits on both, and may die of a bad file without any of us.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .....protocol.errors import ProcessError, TimedOut
from .bounds import TOO_MUCH, Bounds, CantRead

if TYPE_CHECKING:
    from .....supervisors.actor import Actor
    from .....supervisors.process import Completed

WORKER = Path(__file__).with_name("workers") / "pdf_text.py"
MEGABYTES = 2048


class Head(msgspec.Struct, frozen=True):
    """The worker's first line."""

    title: str = ""
    pages: int = 0
    empty: bool = False


async def pdf_text(me: Actor, data: bytes, bounds: Bounds) -> tuple[str, str]:
    """Title and text of a PDF.

    Raises:
        CantRead: it has none, is too large, takes too long, is broken, or pypdf is not installed.
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
        raise CantRead(f"it took more than {bounds.seconds:g} s to be read") from None
    except ProcessError as error:
        raise CantRead(f"the reader of PDF files could not be started: {error}") from error
    return told(done)


def told(done: Completed) -> tuple[str, str]:
    """What the worker's end means."""
    if done.truncated:
        raise CantRead(TOO_MUCH)
    if done.status == 3:
        raise CantRead("PDF files need pypdf; run: pip install 'callboard[docs]' (or name a loader for `pdf`)")
    if done.status == 4:
        raise CantRead(f"this PDF can't be read: {done.stdout.decode(errors='replace')}")
    if done.status != 0:
        raise CantRead(f"this PDF broke its reader (status {done.status}, signal {done.signal})")
    line, _, text = done.stdout.partition(b"\n")
    head = msgspec.json.decode(line, type=Head)
    if head.empty:
        pages = "1 page" if head.pages == 1 else f"{head.pages} pages"
        raise CantRead(
            f"there is no text in its {pages}, only pictures perhaps; name a loader for `pdf` that reads those"
        )
    return head.title, text.decode()
