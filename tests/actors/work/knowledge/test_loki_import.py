"""Loki's knowledge files taken over: nothing is embedded again that need not be, and nothing is lost."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.knowledge_library import hashed
from support.messages import has_message, says

from callboard.actors.work.knowledge import loki_import
from callboard.actors.work.knowledge.base.base import KnowledgeBase, changes
from callboard.actors.work.knowledge.base.model import BuildReport
from callboard.actors.work.knowledge.embed.embedders import Embedders
from callboard.actors.work.knowledge.loki_import import LokiHead, imported, is_loki_file, read_head, read_whole
from callboard.actors.work.knowledge.recipe import Recipe, read_recipe
from callboard.actors.work.knowledge.sources.gather import gather
from callboard.protocol.errors import ActorFailed, KnowledgeError
from callboard.protocol.knowledge import Chunk
from callboard.protocol.settings import ClientSettings, Settings
from callboard.supervisors import Actor, Root

CATS = "Cats purr.\n\nThey sleep\nall day."
DOGS = "Dogs bark at cats."


def packed(text: str) -> str:
    """A vector as Loki writes it."""
    return base64.b64encode(hashed([text])[0].astype("<f4").tobytes()).decode()


def block(text: str, indent: int) -> str:
    """A text as Loki's writer of YAML would put it."""
    if "\n" not in text:
        return f" {text}"
    return " |-" + "".join(f"\n{' ' * indent}{line}" if line else "\n" for line in text.split("\n"))


class Loki:
    """Writes a knowledge file as Loki does.

    Attributes:
        head: its first lines.
        texts: pieces by path; the text of a path is all of them with an empty line between.
        vectors: by their keys.
    """

    def __init__(self, texts: dict[str, list[str]]) -> None:
        self.head = {
            "embedding_model": "fake:m",
            "chunk_size": "1500",
            "chunk_overlap": "75",
            "reranker_model": "null",
            "top_k": "7",
            "batch_size": "100",
            "next_file_id": str(len(texts)),
        }
        self.texts = texts
        self.vectors = {
            f"{number}-{at}": packed(piece)
            for number, pieces in enumerate(texts.values())
            for at, piece in enumerate(pieces)
        }

    @property
    def yaml(self) -> str:
        """The file."""
        lines = [f"{key}: {value}" for key, value in self.head.items()]
        lines += ["document_paths:", *(f"- {path}" for path in self.texts), "files:"]
        for number, (path, pieces) in enumerate(self.texts.items()):
            whole = hashlib.sha256("\n\n".join(pieces).encode()).hexdigest()
            lines += [f"  {number}:", f"    hash: {whole}", f"    path: {path}", "    documents:"]
            for piece in pieces:
                lines += [f"    - page_content:{block(piece, 8)}", "      metadata: {}"]
        lines += ["vectors:", *(f"  {key}: {value}" for key, value in self.vectors.items())]
        return "\n".join(lines) + "\n"


class LokiBase:
    """An agent's directory with such a file, and a base made of it.

    Attributes:
        agent: the directory.
        server: of the model `fake:m`.
        told: messages of warnings, and nothing of other events.
    """

    def __init__(self, root: Root, agent: Path, server: FakeModels, environ: dict[str, str]) -> None:
        self.root = root
        self.agent = agent
        self.server = server
        client = ClientSettings(type="openai-compatible", name="fake", api_base=server.openai_base, api_key="k")
        self.told: list[str] = []
        self.embedders = Embedders(Settings(clients=(client,)), environ)
        self.recipe = Recipe(
            what="rag node 'look' of 'a'",
            target="a:look",
            directory=agent / "look.kb",
            documents=("./docs/",),
            base=agent,
            upstream=agent / "look.yaml",
        )

    def file(self, name: str, text: str) -> str:
        """Write a document; its path."""
        path = self.agent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1000, 1000))
        return str(path)

    async def take(self, loki: Loki | str, **changes: Any) -> BuildReport:
        """Take it over."""
        assert self.recipe.upstream is not None
        self.recipe.upstream.write_text(loki if isinstance(loki, str) else loki.yaml)
        recipe = msgspec.structs.replace(self.recipe, **changes)

        async def body(me: Actor) -> BuildReport:
            return await imported(me, recipe, self.embedders)

        stream = self.root.bus.open("run-1")
        try:
            with stream.listen(lambda event: self.told.append(getattr(event.data, "message", ""))):
                return await self.root.spawn(body, name="take", stream=stream, link=False).result()
        except ActorFailed as failed:
            raise (failed.__cause__ or failed) from None
        finally:
            self.root.bus.close(stream)

    async def chunks(self) -> dict[str, list[Chunk]]:
        """What is in the base, by source."""
        found: dict[str, list[Chunk]] = {}
        base = await KnowledgeBase.open(self.recipe.directory)
        await base.export(lambda some: [found.setdefault(each.source, []).append(each) for each in some])
        base.close()
        return found

    async def find(self, text: str) -> Any:
        """What a query finds; best first."""
        base = await KnowledgeBase.open(self.recipe.directory)
        try:
            return await base.retrieve(text, hashed([text])[0], top_k=1)
        finally:
            base.close()


def embeds(request: Any) -> Reply:
    """The model of the file, as it is today."""
    rows = hashed(request.json["input"]).tolist()
    return Reply(raw=json.dumps({"data": [{"index": n, "embedding": row} for n, row in enumerate(rows)]}).encode())


@pytest.fixture
async def loki_base(tmp_path: Path, fake_model: FakeModels) -> AsyncIterator[LokiBase]:
    """See `LokiBase`."""
    agent = (tmp_path / "agents" / "a").resolve()
    agent.mkdir(parents=True)
    fake_model.answer_with(embeds)
    async with Root() as root:
        loki_base = LokiBase(root, agent, fake_model, {"XDG_CACHE_HOME": str(tmp_path)})
        async with aclosing(loki_base.embedders):
            yield loki_base


def two(loki_base: LokiBase) -> Loki:
    """Two documents as they are, and Loki's file of them."""
    return Loki(
        {loki_base.file("docs/cats.md", CATS): CATS.split("\n\n"), loki_base.file("docs/dogs.txt", DOGS): [DOGS]}
    )


# --- what is taken ----------------------------------------------------------------------------------------------


async def test_texts_and_vectors_are_taken_and_nothing_is_embedded(loki_base: LokiBase) -> None:
    report = await loki_base.take(two(loki_base))
    assert (report.added, report.chunks, report.embedded, report.unreadable) == (2, 3, 0, ())
    assert loki_base.server.requests == [], "the vectors came from the file"
    found = await loki_base.find("cats purr")
    assert found.chunks[0].text == "Cats purr."
    assert found.chunks[0].source == "docs/cats.md"


async def test_lines_are_those_of_the_file_that_was_cut_up(loki_base: LokiBase) -> None:
    await loki_base.take(two(loki_base))
    chunks = await loki_base.chunks()
    assert [(chunk.text, chunk.lines) for chunk in chunks["docs/cats.md"]] == [
        ("Cats purr.", (1, 1)),
        ("They sleep\nall day.", (3, 4)),
    ]


async def test_an_imported_base_is_up_to_date_and_a_build_goes_on_with_it(loki_base: LokiBase) -> None:
    loki = two(loki_base)
    await loki_base.take(loki)
    base = await KnowledgeBase.open(loki_base.recipe.directory)

    async def body(me: Any) -> Any:
        return await changes(base, gather(me, loki_base.recipe.documents, base=loki_base.agent, environ={}))

    try:
        assert not await loki_base.root.spawn(body, name="look").result()
        loki_base.file("docs/dogs.txt", "Dogs are quiet now.")
        assert (await loki_base.root.spawn(body, name="look").result()).changed == ("docs/dogs.txt",)
    finally:
        base.close()


async def test_the_base_remembers_how_loki_had_built_it(loki_base: LokiBase) -> None:
    await loki_base.take(two(loki_base), top_k=3)
    base = await KnowledgeBase.open(loki_base.recipe.directory)
    base.close()
    assert (base.meta.model, base.meta.dimension) == ("fake:m", 64)
    assert (base.meta.settings.chunk_size, base.meta.settings.chunk_overlap) == (1500, 75)
    kept = read_recipe(loki_base.recipe.directory)
    assert (kept.embedding_model, kept.chunk_size, kept.chunk_overlap, kept.batch_size) == ("fake:m", 1500, 75, 100)
    assert kept.top_k == 3, "what the recipe says counts"
    assert kept.documents == ("./docs/",)


async def test_documents_that_nobody_names_any_more_are_those_of_the_file(loki_base: LokiBase) -> None:
    loki = two(loki_base)
    await loki_base.take(loki, documents=())
    assert read_recipe(loki_base.recipe.directory).documents == tuple(loki.texts)


async def test_an_agent_that_was_moved_keeps_its_names(loki_base: LokiBase) -> None:
    loki_base.file("docs/cats.md", CATS)
    await loki_base.take(
        Loki({"/home/her/.config/loki/agents/a/docs/cats.md": CATS.split("\n\n"), "/srv/agents/a/gone.md": ["Gone."]})
    )
    chunks = await loki_base.chunks()
    assert set(chunks) == {"docs/cats.md", "/srv/agents/a/gone.md"}
    assert chunks["docs/cats.md"][1].lines == (3, 4)


async def test_pages_and_what_loaders_made_are_called_as_they_were(loki_base: LokiBase) -> None:
    await loki_base.take(Loki({"https://example.com/spec": ["A spec."], "git:./project": ["A program."]}))
    assert set(await loki_base.chunks()) == {"https://example.com/spec", "git:./project"}


async def test_what_was_no_text_counts_as_read_if_it_is_older_than_the_file(loki_base: LokiBase) -> None:
    """Loki keeps the checksum of a PDF's text, which says nothing about the PDF."""
    path = Path(loki_base.file("docs/a.pdf", "no text"))
    await loki_base.take(Loki({str(path): ["What the PDF said."]}))
    base = await KnowledgeBase.open(loki_base.recipe.directory)
    [known] = await base.sources()
    base.close()
    assert known.digest == hashlib.sha256(path.read_bytes()).hexdigest()


# --- what is broken ---------------------------------------------------------------------------------------------

BROKEN: dict[str, Callable[[str], str]] = {
    "missing": lambda vector: "",
    "no base64": lambda vector: f"{vector[:-4]}%%%%",
    "cut short": lambda vector: vector[:40],
    "of another length": lambda vector: base64.b64encode(np.ones(3, "<f4").tobytes()).decode(),
    "no numbers": lambda vector: base64.b64encode(np.full(64, np.nan, "<f4").tobytes()).decode(),
    "nothing": lambda vector: base64.b64encode(np.zeros(64, "<f4").tobytes()).decode(),
}


@pytest.mark.parametrize("how", BROKEN)
async def test_a_broken_vector_is_made_again_and_told(how: str, loki_base: LokiBase) -> None:
    loki = two(loki_base)
    loki.vectors["0-1"] = BROKEN[how](loki.vectors["0-1"])
    report = await loki_base.take(loki)
    assert (report.chunks, report.embedded) == (3, 1)
    [request] = loki_base.server.requests
    assert request.json["input"] == ["They sleep\nall day."]
    assert (await loki_base.find("sleep all day")).chunks[0].source == "docs/cats.md"
    assert has_message("".join(loki_base.told), "work.knowledge.loki_import.imported.3", lost=1)


async def test_a_model_that_changed_its_vectors_is_noticed(loki_base: LokiBase) -> None:
    loki = two(loki_base)
    del loki.vectors["0-1"]
    loki_base.server.script(Reply(raw=b'{"data": [{"index": 0, "embedding": [1, 2]}]}'))
    with pytest.raises(KnowledgeError, match=says("work.knowledge.loki_import._Taken.embed")):
        await loki_base.take(loki)


async def test_a_model_that_cannot_be_reached_is_told_before_anything_is_done(loki_base: LokiBase) -> None:
    loki = two(loki_base)
    loki.head["embedding_model"] = "cohere:embed-v3"
    with pytest.raises(
        KnowledgeError,
        match=says(
            "work.knowledge.loki_import.imported.2",
            embedding_model="cohere:embed-v3",
            error="…COHERE_API_KEY…",
            ANEW="--rebuild-kb",
        ),
    ):
        await loki_base.take(loki)
    assert not loki_base.recipe.directory.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", says("work.knowledge.loki_import._Cursor._enter", _next="a mapping…")),
        ("- a\n", says("work.knowledge.loki_import._Cursor._enter", _next="a mapping in line 1…")),
        ("name: a\nnodes: {}\n", says("work.knowledge.loki_import.read_whole")),
        ("embedding_model: m\nchunk_size: many\nchunk_overlap: 1\n", says("work.knowledge.loki_import._made")),
        (
            "embedding_model: &a m\nchunk_size: 1\nchunk_overlap: 1\nother: *a\n",
            says("work.knowledge.loki_import._Cursor._take", event=" in line 4"),
        ),
        ("embedding_model: m\nchunk_size: 1\nchunk_overlap: 1\nfiles: &a {}\nvectors: *a\n", "mapping in line 5"),
        (
            "embedding_model: m\nchunk_size: 1\nchunk_overlap: 1\nfiles: [1]\n",
            says("work.knowledge.loki_import._Cursor._enter", _next="a mapping in line 4…"),
        ),
        (
            "embedding_model: m\nchunk_size: 1\nchunk_overlap: 1\nfiles: {x: {}}\n",
            says("work.knowledge.loki_import._number", key="…'x…"),
        ),
        ("embedding_model: m\nfiles:\n  0: {hash: '\n", "can't be read: .* in line 4"),
        ("embedding_model: \x01\n", "can't be read"),
        ("a: " + "[" * 5000 + "]" * 5000, says("work.knowledge.loki_import.read_whole")),
    ],
)
async def test_a_file_of_another_shape_is_refused_with_its_place(text: str, words: str, loki_base: LokiBase) -> None:
    with pytest.raises(KnowledgeError, match=words):
        await loki_base.take(text)


async def test_a_file_without_contents_makes_an_empty_base(loki_base: LokiBase) -> None:
    report = await loki_base.take("embedding_model: fake:m\nchunk_size: 1\nchunk_overlap: 0\nfiles: {}\nvectors: {}\n")
    assert report.chunks == 0


async def test_an_import_that_was_cancelled_leaves_no_lock_and_is_done_the_next_time(loki_base: LokiBase) -> None:
    loki = two(loki_base)
    del loki.vectors["0-1"]
    loki_base.server.script(Reply(hold=trio.Event()))
    (loki_base.agent / "look.yaml").write_text(loki.yaml)
    scope = trio.CancelScope()

    async def body(me: Actor) -> None:
        with scope:
            await imported(me, loki_base.recipe, loki_base.embedders)

    importing = loki_base.root.spawn(body, name="import")
    await loki_base.server.arrived(1)
    scope.cancel()
    await importing.result()
    report = await loki_base.take(loki)
    assert (report.added, report.chunks, report.embedded) == (2, 3, 1)


# --- what it is -------------------------------------------------------------------------------------------------


async def test_the_head_is_read_without_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "k.yaml"
    path.write_text(Loki({"/a": ["x"]}).yaml.replace("files:", "files: [this is: {no YAML"))
    head = await trio.to_thread.run_sync(read_head, path)
    assert head == LokiHead(
        embedding_model="fake:m",
        chunk_size=1500,
        chunk_overlap=75,
        top_k=7,
        batch_size=100,
        document_paths=("/a",),
    )


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (Loki({"/a": ["x"]}).yaml, True),
        ("name: a graph\nnodes:\n  a: {type: end}\n", False),
        ("model: openai:x\ntemperature: 0\n", False),
        ("not: [yaml", False),
        ("embedding_model: m\nchunk_size: [\n", True),
        ("base: &a {x: 1}\nnodes: *a\n", False),
        ("", False),
    ],
)
async def test_the_yaml_of_something_else_is_not_taken_for_one(text: str, is_one: bool, tmp_path: Path) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(text)
    assert await trio.to_thread.run_sync(is_loki_file, path) is is_one
    assert await trio.to_thread.run_sync(is_loki_file, tmp_path / "none.yaml") is False


async def test_a_broken_file_has_no_head_and_is_no_reason_to_fail_before_it_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "k.yaml"
    for text in ("embedding_model: m\nchunk_size: [\n", "embedding_model: m\nchunk_size: x\nchunk_overlap: 1\n", ""):
        path.write_text(text)
        assert await trio.to_thread.run_sync(read_head, path) is None
    assert await trio.to_thread.run_sync(read_head, tmp_path / "none.yaml") is None


async def test_a_file_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loki_import, "MOST", 100_000)
    path = tmp_path / "k.yaml"
    path.write_text(Loki({"/a": ["x " * 100_000]}).yaml)
    with pytest.raises(KnowledgeError, match=says("work.knowledge.loki_import._Bounded.read")):
        await trio.to_thread.run_sync(read_whole, path)


async def test_whoever_gives_up_waiting_is_not_read_on_for(tmp_path: Path) -> None:
    path = tmp_path / "k.yaml"
    os.mkfifo(path)  # a file whose end never comes

    async def feed() -> None:
        file = await trio.open_file(path, "wb", buffering=0)
        async with file:
            await file.write(b"embedding_model: m\nx: |\n")
            with trio.move_on_after(60, shield=True):
                for number in range(10_000):
                    try:
                        await file.write(b"  text\n" * 1000)
                    except BrokenPipeError:
                        return
                    if number == 20:  # more than a pipe holds, so it is being read
                        scope.cancel()
        pytest.fail("it was read to the end")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed)
        with trio.CancelScope() as scope:
            await trio.to_thread.run_sync(read_whole, path)
        assert scope.cancelled_caught
