"""Files attached to a prompt with `-f`: read once, for this run, and not stored.

    -f notes.md                  a file; -f ./docs a directory, -f 'docs/**/*.md' a glob
    -f https://example.com/spec  a page
    -f '`git diff`'              output of a command, run by `sh` in the working directory
    -f %%                        the last reply
    -f git:./project             output of the loader `git` of `document_loaders`

Up to `WHOLE` characters are inserted into the prompt unchanged, each document under its name. Larger attachments become
a temporary knowledge base. The best passages for the prompt are inserted, and a warning says so. Commands are run
because the user typed them: no text of a file or a model reaches this module.

An attachment without any document is an error: the user expects an attached file to be read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing
from html import escape
from pathlib import Path
from typing import final

from ....protocol.errors import UsageError
from ....protocol.events import Warned
from ....protocol.knowledge import Document, Unreadable
from ....supervisors.actor import Actor
from ...io import temporary
from ...io.saved_replies import last_reply
from .base.base import KnowledgeBase
from .base.build import build
from .base.passages import as_query
from .embed.embedder import Embedder
from .progress import listed
from .reading.limits import CantRead
from .reading.read import RawDocument
from .sources.found import FetchedSource, SourceContext
from .sources.gather import gather
from .sources.specs import is_wild, parse
from .split import split

WHOLE = 100_000
"""Most characters of all attachments that are inserted unchanged: some 25,000 tokens."""

MOST = 20_000_000
"""Most characters of all attachments; for more, the user should create a permanent knowledge base."""

PASSAGES = 20
"""Chunks to retrieve from attachments that are too large."""

COMMAND_SECONDS = 60.0

LAST_REPLY = "%%"
LONGEST_NAMED = 500
"""Most characters of a name that an error quotes."""


def check(files: Sequence[str], loaders: Collection[str] = (), *, base: Path | None = None) -> None:
    """Check that each attachment is valid, without reading any.

    Args:
        loaders: names of `document_loaders`.
        base: directory that relative paths start from; the working directory by default.

    Raises:
        UsageError: an attachment is invalid, or a file is missing.
    """
    for text in files:
        if text.strip() == LAST_REPLY or _command(text) is not None:
            continue
        spec = parse(text, loaders, crawls=False)
        if spec.kind == "path" and not is_wild(spec.target) and not _is_there(spec.target, base or Path.cwd()):
            raise UsageError(f"{text[:LONGEST_NAMED]}: there is no such file or directory")


def _is_there(name: str, base: Path) -> bool:
    try:
        return (base / Path(name).expanduser()).exists()
    except (OSError, RuntimeError, ValueError):  # too long, a null byte, or an unknown home directory
        return False


async def attached(context: SourceContext, files: Sequence[str], query: str, embedder: Callable[[], Embedder]) -> str:
    """Return the text of the attachments, to be inserted before the prompt; "" without attachments.

    Args:
        context: its base is the working directory; its environment locates the last reply.
        files: attachments in the forms that the module lists.
        query: the prompt, used to select passages if there is too much text.
        embedder: returns the embedder; called only if there is too much text.

    Raises:
        UsageError: an attachment can't be read or has no text; all together exceed `MOST`; or passages must be
            selected, and the query is empty or matches none.
        ConfigError: there is too much text, and no embedding model.
    """
    if not files:
        return ""
    reading = _Reading(context)
    for text in files:
        await reading.add(text)
    reading.warn_unreadable()
    if reading.characters <= WHOLE:
        return "\n\n".join(
            f'<document source="{escape(each.source)}">\n{each.text.strip()}\n</document>' for each in reading.documents
        )
    return await _passages(context.me, reading, query, embedder())


def _command(text: str) -> str | None:
    text = text.strip()
    return text[1:-1].strip() if len(text) > 2 and text[0] == text[-1] == "`" else None


@final
class _Reading:
    """Reader of attachments: one after the other, each source once."""

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self.sources: dict[str, list[Document]] = {}
        self.characters = 0
        self._unreadable: list[Unreadable] = []

    @property
    def documents(self) -> list[Document]:
        return [document for documents in self.sources.values() for document in documents]

    async def add(self, text: str) -> None:
        if text.strip() == LAST_REPLY:
            self._keep("the last reply", [self._last_reply()])
        elif (command := _command(text)) is not None:
            self._keep(text.strip(), [await self._printed(command)])
        else:
            await self._gather(text)

    def warn_unreadable(self) -> None:
        """Warn about unreadable sources; it is only called if the others could be read."""
        if not self._unreadable:
            return
        told = listed([f"{each.source} ({each.reason})" for each in self._unreadable], "; ")
        message = f"not attached, because the files can't be read: {told}"
        self._context.me.emit(Warned(code="files_unreadable", message=message))

    async def _gather(self, text: str) -> None:
        before, failed = len(self.sources), len(self._unreadable)
        here, known = self._context, False
        found = gather(here.me, [text], base=here.base, environ=here.environ, settings=here.settings)
        async with aclosing(found) as findings:
            async for finding in findings:
                if isinstance(finding, Unreadable):
                    self._unreadable.append(finding)
                elif finding.source in self.sources:
                    known = True
                else:
                    self._keep(finding.source, await finding.documents())
        # A source that another attachment has already read is no error.
        if len(self.sources) == before and not known:
            reasons = [each.reason for each in self._unreadable[failed:]]
            raise UsageError(f"{text}: {reasons[0] if reasons else 'the source has no readable text'}")

    def _keep(self, source: str, found: Sequence[Document | Unreadable]) -> None:
        self._unreadable += [each for each in found if isinstance(each, Unreadable)]
        documents = [each for each in found if isinstance(each, Document)]
        if not documents:
            return
        self.sources[source] = documents
        self.characters += sum(len(document.text) for document in documents)
        if self.characters > MOST:
            raise UsageError(
                f"attached files: together they have more than {MOST:,} characters, the limit of one run; "
                "build a knowledge base from them: callboard kb new NAME SOURCE..., and use it with --kb NAME"
            )

    def _last_reply(self) -> Document:
        try:
            reply = last_reply(self._context.environ)
        except OSError as error:
            raise UsageError(f"{LAST_REPLY}: the last reply can't be read: {error.strerror}") from error
        if reply is None:
            raise UsageError(f"{LAST_REPLY}: there is no last reply yet")
        return Document(source="the last reply", text=reply, kind="markdown")

    async def _printed(self, command: str) -> Document:
        name, context = f"`{command}`", self._context
        hint = "\n    append `|| true` to the command if its failure is expected"
        try:
            data = await context.printed(["/bin/sh", "-c", command], "attached", seconds=COMMAND_SECONDS, hint=hint)
            contents = await context.read(RawDocument(source=name, data=data, path="printed.txt"))
        except CantRead as error:
            raise UsageError(f"{name}: {error}") from error
        return contents.documents[0]


async def _passages(me: Actor, reading: _Reading, query: str, embedder: Embedder) -> str:
    """Return the best passages for the prompt, of attachments that are too large."""
    if not query.strip():
        raise UsageError(
            f"attached files: they have {reading.characters:,} characters, and at most {WHOLE:,} are sent in "
            "full; write a PROMPT, so that the passages that match it can be selected"
        )
    me.emit(
        Warned(
            code="files_indexed",
            message=(
                f"the attached files have {reading.characters:,} characters, and at most {WHOLE:,} are sent in "
                f"full: only the {PASSAGES} passages that match the prompt best are sent"
            ),
        )
    )

    async def sources() -> AsyncIterator[FetchedSource]:
        for source, documents in reading.sources.items():
            yield FetchedSource(source, hashlib.sha256(os.fsencode(source)).hexdigest(), documents)

    with temporary.directory("attached-") as home:
        place, query = home / "attached.kb", as_query(query)
        await build(me, place, sources(), embedder=embedder, splitter=split)
        [vector] = await embedder.embed(me, [query], query=True)
        base = await KnowledgeBase.open(place)
        try:
            found = await base.retrieve(query, vector, top_k=PASSAGES)
        finally:
            base.close()
    if not found.chunks:
        raise UsageError("no passage of the attached files matches the prompt")
    return f"Passages from the attached files that may help, not all of their text:\n\n{found.context}"
