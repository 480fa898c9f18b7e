"""Memory stores: their interface, and the four kinds that a workflow can describe.

    SimpleMemory      inputs and outputs of nodes, searched by similarity; in a notebook
    Documents         read-only documents, searched by similarity; a knowledge base
    Mem0              the mem0 service, over HTTP, which extracts memories from the nodes' inputs itself
    BlackboardStore   outputs of nodes, in order; in a notebook

Embedding model (`OrWords`): the model that the file names, else the user's default, else a word index. The word index
is used if nothing better is available: no model is named and the weights of `local:static` are missing, or the named
provider has no embeddings. A memory that finds words is more useful than a run that fails. A warning reports this once.
A rejected key or an unreachable server is an error and not a reason for the word index.

Simple store: it stores "Input: ...\\nOutput: ..." once, with the vector of the text without these headings. A search
takes the nearest texts by vector within the threshold, three times as many as requested. It returns the best of these
by .7 of the cosine and .3 of `likeness`. Vectors of another model than the current one are recomputed on demand.

`likeness` measures the similarity of two texts by words and letters, with DevAll's weights:

    .4 of the words in both texts, of all words        .3 of the longest common subsequence of letters
    .2 of the question's words in the text             .1 of the ratio of lengths

The subsequence is computed with integers as sets of positions (Hyyrö). So the time is proportional to the length of one
text, not to the product of both.

mem0 has two requests; `MEM0_BASE_URL` overrides the address of the service:

    POST {base}/v1/memories/            {messages, user_id, agent_id, ...}
    POST {base}/v2/memories/search/     {query, filters, top_k}
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from .....protocol.decoding import decode_json
from .....protocol.errors import CallboardError, ConfigError, CredentialsError, ModelError, Unsupported
from .....protocol.events import Warned
from .....protocol.json_values import UNREADABLE
from .....protocol.workflow.model import FileSource, Mem0Store
from .....supervisors import Actor
from ....work.context import RunContext
from ....work.knowledge.embed import local
from ....work.knowledge.recipe import Recipe
from .notebook import Note, Notebook

if TYPE_CHECKING:
    from ....work.knowledge.embed.embedder import Embedder, Vectors
    from ....work.models.call import Emitter
    from ....work.models.client import Endpoint


class MemoryStore:
    """Memory that several nodes share.

    Attributes:
        repeatable: a second `remember` under the same key has no effect.
    """

    repeatable = True

    async def recall(self, me: Actor, text: str, *, top_k: int, threshold: float) -> list[str]:
        """Return the texts for a query, best first.

        Args:
            text: the node's inputs, and its output if that exists already.
            top_k: most texts.
            threshold: least similarity, a cosine.

        Raises:
            CallboardError: the store cannot be read.
        """
        raise NotImplementedError

    async def remember(self, me: Actor, given: str, said: str, key: str | None = None) -> None:
        """Store a node's inputs and output; a read-only store does nothing.

        Args:
            key: key of this write, in a durable run; None if it is never repeated.

        Raises:
            CallboardError: the store cannot be written.
        """

    def close(self) -> None:
        """Close the store's own files and connections."""


# --- embedding model --------------------------------------------------------------------------------------


NO_SUCH_THING = frozenset({404, 405, 501})
"""HTTP status of servers without embeddings, or without the model."""


class OrWords(msgspec.Struct):
    """Embedder that changes to a word index permanently when embeddings are unavailable.

    Attributes:
        store: the store's name.
        named: returns the id of the model that the file names; None if it names none.
        allowed: the word index may be used at all.
    """

    context: RunContext
    store: str
    named: Callable[[Actor], str] | None
    allowed: bool
    _embedder: Embedder | None = None

    async def prepare(self, me: Actor, model: str | None = None) -> None:
        """Load the secrets that this embedding model needs; None stands for the user's default model."""
        knowledge = self.context.knowledge.of(me)
        await knowledge.embedders.prepare(model or knowledge.settings.rag_embedding_model)

    def model_for(self, me: Actor) -> str | None:
        """Return the word model if the default model is unavailable here; None for the default model.

        For a store whose file names no model.
        """
        try:
            self.context.knowledge.of(me).embedder()
        except ConfigError as error:
            if not self.stands_in(error):
                return None  # the first use raises the error with its remedy
            self.warn(me, error)
            return local.WORDS
        return None

    @property
    def model(self) -> str:
        """Model of the computed vectors; known after the first `embed`."""
        assert self._embedder is not None
        return self._embedder.model

    async def embed(self, me: Actor, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Compute vectors; see `Embedder.embed`."""
        try:
            if self._embedder is None:
                named = None if self.named is None else self.named(me)
                await self.prepare(me, named)
                self._embedder = self.context.knowledge.of(me).embedder(named)
            return await self._embedder.embed(me, texts, query=query)
        except (ConfigError, ModelError, Unsupported) as error:
            by_words = self._embedder is not None and self._embedder.model == local.WORDS
            if by_words or not self.stands_in(error):
                raise
            self.warn(me, error)
            self._embedder = self.context.knowledge.of(me).embedder(local.WORDS)
            return await self._embedder.embed(me, texts, query=query)

    def stands_in(self, error: Exception) -> bool:
        """Return True if the word index may replace embeddings after this failure (see the module)."""
        if not self.allowed:
            return False
        if self.named is None:  # a model that the user has chosen must work
            chosen = self.context.settings.rag_embedding_model
            return not chosen and isinstance(error, ConfigError) and not isinstance(error, CredentialsError)
        return isinstance(error, Unsupported) or (isinstance(error, ModelError) and error.status in NO_SUCH_THING)

    def warn(self, me: Emitter, error: Exception) -> None:
        """Emit a warning that the word index is used."""
        text = f"the memory '{self.store}' is searched by words, because no embeddings are available: {error}"
        me.emit(Warned(code="memory_by_words", message=text))


# --- documents --------------------------------------------------------------------------------------------


# DevAll's figures.
CHUNK, OVERLAP = 500, 50
"""Characters of a chunk, and of its overlap with the next."""


class Documents(msgspec.Struct, MemoryStore):
    """Memory store over a knowledge base.

    Attributes:
        sources: the documents.
        directory: directory of the knowledge base.
        base: directory that relative sources start from.
        model: returns the embedding model for an actor; None for the user's default model.
        words: fallback to a word index if embeddings are unavailable.
    """

    name: str
    context: RunContext
    sources: tuple[FileSource, ...]
    directory: Path
    base: Path
    model: Callable[[Actor], str] | None
    words: OrWords
    _by_words: bool = False
    _recipe: Recipe | None = None

    async def recall(self, me: Actor, text: str, *, top_k: int, threshold: float) -> list[str]:
        recipe = await self._there(me)
        above = min(threshold, 0.0) if self._by_words else threshold
        above -= local.LEAST
        found = await self.context.knowledge.of(me).retrieve(
            me, recipe, text, top_k=top_k, min_score=above, mode="vector"
        )
        return [hit.text for hit in found.chunks]

    async def _there(self, me: Actor) -> Recipe:
        knowledge, recipe = self.context.knowledge, self._recipe
        if recipe is None:
            await self.words.prepare(me)
            model = self.model(me) if self.model else self.words.model_for(me)
            recipe = await trio.to_thread.run_sync(self._made, model)
        try:
            await knowledge.ready(me, [recipe])
        except CallboardError as error:
            if not self.words.stands_in(error):
                raise
            self.words.warn(me, error)
            recipe = msgspec.structs.replace(recipe, embedding_model=local.WORDS)
            await knowledge.ready(me, [recipe])
        if self._recipe is None:
            meta = await knowledge.of(me).meta(recipe)
            self._by_words = meta is not None and meta.model == local.WORDS
            self._recipe = recipe
        return recipe

    def _made(self, model: str | None) -> Recipe:
        documents = tuple(spec for source in self.sources for spec in specs(source, self.base))
        return Recipe(
            what=f"memory '{self.name}'",
            target=str(self.directory),
            directory=self.directory,
            documents=documents,
            base=self.base,
            embedding_model=model,
            chunk_size=CHUNK,
            chunk_overlap=OVERLAP,
        )


def specs(source: FileSource, base: Path) -> list[str]:
    """Return a file source as entries of `documents:`: a path, or globs for the chosen files of a directory."""
    path = Path(source.path).expanduser()
    if not path.is_absolute() and not (base / path).exists() and path.exists():
        path = path.absolute()  # DevAll resolves its paths against the current directory
    found = base / path
    if not found.is_dir():
        return [str(path)]
    below = "**/" if source.recursive else ""
    if not source.file_types:
        return [str(path)] if source.recursive else [str(path / "*")]
    return [str(path / f"{below}*.{ending.lstrip('*').lstrip('.')}") for ending in source.file_types]


# --- mem0 -------------------------------------------------------------------------------------------------


MEM0 = "https://api.mem0.ai"
MEM0_QUERY = 2_000
MEM0_LONGEST = 20_000
_ID = "mem0:memories"
"""Name of the service in errors."""


class _Memory(msgspec.Struct):
    memory: str = ""
    score: float | None = None


class _Found(msgspec.Struct):
    results: list[_Memory] = []


class Mem0(MemoryStore):
    """Memory store in the mem0 service; it sends only the nodes' inputs, not their outputs."""

    # The service accepts no key, so a repeated write would store the text twice.
    repeatable = False

    def __init__(self, config: Mem0Store, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._headers = {"authorization": f"Token {config.api_key}"}
        self._who = {name: value for name in ("user_id", "agent_id") if (value := getattr(config, name))}
        self._where = {name: value for name in ("org_id", "project_id") if (value := getattr(config, name))}
        self._endpoint: Endpoint | None = None

    async def recall(self, me: Actor, text: str, *, top_k: int, threshold: float) -> list[str]:  # noqa: ARG002 - a `MemoryStore`
        query = plain(text, MEM0_QUERY)
        if not query:
            return []
        filters = {"AND": [{name: value} for name, value in self._who.items()]} if self._who else {}
        body = {"query": query, "filters": filters, "top_k": top_k, **self._where}
        answer = await self._post("/v2/memories/search/", body)
        # Without a score, the service's own order counts.
        near = [each for each in _read(answer) if each.score is None or each.score >= threshold]
        return [each.memory for each in near if each.memory][:top_k]

    async def remember(self, me: Actor, given: str, said: str, key: str | None = None) -> None:  # noqa: ARG002 - a `MemoryStore`
        if given.strip():
            messages = [{"role": "user", "content": given[:MEM0_LONGEST]}]
            await self._post("/v1/memories/", {"messages": messages, **self._who, **self._where})

    def close(self) -> None:
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.close()

    async def _post(self, path: str, body: dict[str, Any]) -> bytes:
        if self._endpoint is None:
            from ....work.models.client import Endpoint

            base = (self._environ.get("MEM0_BASE_URL") or MEM0).rstrip("/")
            self._endpoint = Endpoint(base, "", 10.0, self._environ)
        return await self._endpoint.post(_ID, self._headers, path, msgspec.json.encode(body))


def _read(answer: bytes) -> list[_Memory]:
    try:
        found = decode_json(answer, list[_Memory] | _Found)
    except UNREADABLE as error:
        raise ModelError(f"mem0: the service sent an unreadable answer: {error}") from error
    return found if isinstance(found, list) else found.results


# --- simple store -----------------------------------------------------------------------------------------


COMPARED = 500
"""Most characters of a text that are compared."""

_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+")


def likeness(question: str, text: str) -> float:
    """Return the similarity of two texts by words and letters, from 0 to 1 (see the module)."""
    asked, told = question[:COMPARED].lower(), text[:COMPARED].lower()
    if not asked or not told:
        return 0.0
    wanted, there = set(_WORD.findall(asked)), set(_WORD.findall(told))
    both = len(wanted & there)
    words = both / len(wanted | there) if wanted or there else 0.0
    letters = common(asked, told) / max(len(asked), len(told))
    covered = both / len(wanted) if wanted else 0.0
    lengths = min(len(asked), len(told)) / max(len(asked), len(told))
    return 0.4 * words + 0.3 * letters + 0.2 * covered + 0.1 * lengths


def common(a: str, b: str) -> int:
    """Return the length of the longest common subsequence."""
    places: dict[str, int] = {}
    for i, letter in enumerate(a):
        places[letter] = places.get(letter, 0) | 1 << i
    whole = (1 << len(a)) - 1
    left = whole
    for letter in b:
        hits = left & places.get(letter, 0)
        # One column of the bit-parallel algorithm: the carry of the addition moves through runs of set bits.
        left = (left + hits | left - hits) & whole
    return len(a) - left.bit_count()


def plain(text: str, longest: int) -> str:
    """Return a text on one line, cut at `longest` characters."""
    return " ".join(text[: 4 * longest].split())[:longest]


def brief(text: str, longest: int = COMPARED, sentences: int = 3) -> str:
    """Return the first sentences of a text, cut at `longest` characters."""
    return " ".join(_SENTENCE.split(" ".join(text[: 4 * longest].split()))[:sentences])[:longest]


# `MOST`, `SHORTEST`, `BY_VECTOR`, and the factor 3 in `_nearest` are DevAll's.
MOST = 1000
"""Most stored texts."""

SHORTEST = 20
"""Shortest text in characters that is stored."""

QUERY = 500
LONGEST_NOTE = 8_000
"""Most stored characters of the input, and of the output."""

BY_VECTOR = 0.7
"""Weight of the cosine in the score; the rest is `likeness`."""


class SimpleMemory(MemoryStore):
    """Memory of the inputs and outputs of nodes in a notebook, recalled by similarity.

    Args:
        notes: the notebook.
        vectors: computes the vectors.
        whole: store input and output, up to `LONGEST_NOTE` characters each; otherwise the first sentences of both as
            one text, which may contain nothing of the output.
    """

    def __init__(self, notes: Notebook, vectors: OrWords, *, whole: bool) -> None:
        self._notes = notes
        self._vectors = vectors
        self._whole = whole

    async def recall(self, me: Actor, text: str, *, top_k: int, threshold: float) -> list[str]:
        notes: Mapping[int, Note] = await self._notes.all()
        text = plain(text, QUERY)
        if not notes or not text:
            return []
        asked = (await self._vectors.embed(me, [text], query=True))[0].tobytes()
        notes = await self._with_vectors(me, notes, len(asked))
        if self._vectors.model == local.WORDS:  # cosines of word vectors are lower: a single common word is near enough
            threshold = min(threshold, local.LEAST)
        return await trio.to_thread.run_sync(_nearest, list(notes.values()), asked, text, top_k, threshold)

    async def remember(self, me: Actor, given: str, said: str, key: str | None = None) -> None:  # noqa: ARG002 - a `MemoryStore`
        if self._whole:
            text = f"Input: {given.strip()[:LONGEST_NOTE]}\nOutput: {said.strip()[:LONGEST_NOTE]}"
        else:
            text = brief(f"Input: {given}\nOutput: {said}")
        if not said.strip() or len(text) < SHORTEST:
            return
        vector = (await self._vectors.embed(me, [_bare(text)]))[0].tobytes()
        digest = hashlib.md5(text.encode(errors="replace"), usedforsecurity=False).hexdigest()
        await self._notes.add(Note(text=text, digest=digest, model=self._vectors.model, vector=vector))

    def close(self) -> None:
        self._notes.close()

    async def _with_vectors(self, me: Actor, notes: Mapping[int, Note], size: int) -> Mapping[int, Note]:
        """Return the notes, each with a vector of this model and of `size` bytes."""
        model = self._vectors.model
        # Another model or another size of the same model: cosines between both mean nothing.
        old = [
            number
            for number, note in notes.items()
            if note.vector is None or note.model != model or len(note.vector) != size
        ]
        if not old:
            return notes
        rows = await self._vectors.embed(me, [_bare(notes[number].text) for number in old])
        made = {number: row.tobytes() for number, row in zip(old, rows, strict=True)}
        await self._notes.set_vectors(model, made)
        again = {number: msgspec.structs.replace(notes[number], model=model, vector=made[number]) for number in old}
        return {**notes, **again}


def _bare(text: str) -> str:
    """Return a note without its headings, which are in all notes and would make all of them similar."""
    return text.removeprefix("Input: ").replace("\nOutput: ", "\n", 1)


def _nearest(notes: list[Note], asked: bytes, text: str, top_k: int, threshold: float) -> list[str]:
    import numpy as np

    vectors = [note.vector for note in notes]
    rows = np.stack([np.frombuffer(vector or b"", dtype=np.float32) for vector in vectors])
    cosines = rows @ np.frombuffer(asked, dtype=np.float32)
    # Stable, so that a replay finds equal texts in the same order.
    near = np.argsort(-cosines, kind="stable")[: 3 * top_k]
    scored = [
        (BY_VECTOR * float(cosines[i]) + (1 - BY_VECTOR) * likeness(text, notes[i].text), i)
        for i in near
        if cosines[i] >= threshold
    ]
    scored.sort(key=lambda each: (-each[0], each[1]))
    return [notes[i].text for _, i in scored[:top_k]]


# --- blackboard -------------------------------------------------------------------------------------------


LONGEST_ON_BOARD = 100_000
"""Most characters of a text on a blackboard."""


class BlackboardStore(MemoryStore):
    """Outputs of nodes, in order; a search returns the latest, whatever the query."""

    def __init__(self, notes: Notebook) -> None:
        self._notes = notes

    async def recall(self, me: Actor, text: str, *, top_k: int, threshold: float) -> list[str]:  # noqa: ARG002 - a `MemoryStore`
        return [note.text for note in await self._notes.latest(top_k)]

    async def remember(self, me: Actor, given: str, said: str, key: str | None = None) -> None:  # noqa: ARG002 - a `MemoryStore`
        if said.strip():
            await self._notes.add(Note(text=said[:LONGEST_ON_BOARD], digest=key))

    def close(self) -> None:
        self._notes.close()
