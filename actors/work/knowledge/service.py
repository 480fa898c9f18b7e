"""The knowledge of a process: every base that its runs look things up in, opened once, built when it is needed.

Open bases are kept in the kernel's pool, one per directory, however many agents read it; one that is idle for a
while is closed. All that blocks is done in threads: of the base, of the embedder, of those who read.

A base is looked up in with the model that it was built with, whatever the settings say by now. What a recipe leaves
open is, for a new base, what the settings say, and for one that is there, how it was built: so a change of settings
changes nothing unseen.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from weakref import WeakValueDictionary

import msgspec
import trio

from ....protocol.errors import ActorFailed, CallboardError, KnowledgeError, UsageError
from ....protocol.events import KnowledgeRetrieved, Warned
from ....protocol.knowledge import Retrieved, Unreadable
from ....protocol.settings import Settings as UserSettings
from ....supervisors.lease import PoolStatistics
from ....supervisors.pool import Pool
from ...io.directories import cache_dir
from .base import build as building
from .base.base import TOP_K, Base, Changes, changes
from .base.layout import Layout, told
from .base.model import BuildReport, Meta, Progress, Settings
from .base.passages import as_query
from .charges import Charges
from .embed.cache import EmbeddingCache, default_path
from .embed.embedder import Embedder
from .embed.embedders import Embedders
from .progress import tell_built, telling
from .recipe import Recipe, encoded
from .sources.found import Finding, SourceSettings
from .sources.gather import gather
from .sources.specs import parse
from .split.split import split

if TYPE_CHECKING:
    from ....supervisors.actor import Actor
    from ....supervisors.root import Root
    from ...io.vault.vault import Vault
    from ..models.limiter import Gates
    from .base.model import Floats

IDLE = 300.0
"""Seconds that an idle base stays open."""

LATELY = 2.0
"""Seconds for which it counts what has changed since a base was built."""

Mode = Literal["hybrid", "vector", "keyword"]


class Knowledge:
    """See the module.

    Args:
        owner: what is opened and started lives and ends as its child.
        settings: what `config.yaml` says.
        environ, vault: keys, proxies, cache directory, and what loaders get; secrets that clients and loaders name.
        gates: the limiters of models, which chats go through, too.

    Attributes:
        charges: who pays for what it asks of models.
    """

    def __init__(
        self,
        owner: Root,
        settings: UserSettings,
        environ: Mapping[str, str],
        gates: Gates | None = None,
        vault: Vault | None = None,
    ) -> None:
        self.settings = settings
        self.environ = environ
        self.charges = Charges()
        cache = EmbeddingCache(default_path(environ))
        self.embedders = Embedders(
            settings,
            environ,
            owner=owner,
            cache=cache,
            account_of=self.charges.account,
            on_usage=self.charges.used,
            gates=gates,
            may_wait=self.charges.may_wait,
            vault=vault,
        )
        loaders, private = settings.document_loaders, settings.rag_private_pages
        self.sources = SourceSettings(loaders=loaders, allow_private=private, vault=vault)
        self._pool: Pool[str, Base] = Pool(owner, _opened, name="knowledge", idle_ttl=IDLE)
        self._seen: dict[Recipe, tuple[float, Changes]] = {}
        self._turns: WeakValueDictionary[Path, trio.Lock] = WeakValueDictionary()

    async def aclose(self) -> None:
        """Close connections and caches. Bases and engines end with their owner."""
        await self.embedders.aclose()

    @property
    def statistics(self) -> PoolStatistics:
        """How many bases are open, and how often they were used."""
        return self._pool.statistics

    def embedder(self, model: str | None = None, *, batch: int | None = None) -> Embedder:
        """The embedder for that model, else for `rag_embedding_model`, else the one that needs no key."""
        named = model or self.settings.rag_embedding_model
        return self.embedders.of(named, batch=batch) if named else self.embedders.of(batch=batch)

    # --- being there ---------------------------------------------------------------------------------------------

    def turn(self, recipe: Recipe) -> trio.Lock:
        """Held by the one task of this process that sees to the base."""
        return self._turns.setdefault(recipe.directory, trio.Lock())

    async def meta(self, recipe: Recipe) -> Meta | None:
        """What the base on the disk says of itself; None if there is none."""
        layout = Layout(recipe.directory)

        def looked_up() -> Meta | None:
            with told(layout):
                number = layout.number()
                return layout.meta(number) if number else None

        return await trio.to_thread.run_sync(looked_up)

    async def build(
        self,
        me: Actor,
        recipe: Recipe,
        *,
        rebuild: bool = False,
        wait: float = 0.0,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> BuildReport:
        """Build the base, or bring it up to date. Where there is none yet and Loki's own file is, that is taken over.

        Args:
            me: owner of the processes that read, and whose events tell how far it is.
            rebuild: use nothing of what is there.
            wait: seconds to wait for another builder.
            on_progress: called often.

        Raises:
            KnowledgeBusy: another process builds it, for longer than `wait`.
            KnowledgeError: it can't be built as the recipe says.
            ConfigError, CredentialsError, UpstreamError: the embedding model is not available.
        """
        known = None if rebuild else await self.meta(recipe)
        tell = telling(me, recipe.what, on_progress)
        if known is None and not rebuild and await self.takes_over(recipe):
            report = await self._taken_over(me, recipe, tell, wait)
        else:
            report = await self._built(me, await _filled(recipe), known, tell, rebuild=rebuild, wait=wait)
        self._seen.pop(recipe, None)
        await self.renew(recipe)
        tell_built(me, recipe, report)
        return report

    async def takes_over(self, recipe: Recipe) -> bool:
        """Whether a file of Loki's is there for the first build."""
        if recipe.upstream is None or not recipe.upstream.is_file():
            return False
        from .loki_file import is_loki_file

        return await trio.to_thread.run_sync(is_loki_file, recipe.upstream)

    async def _taken_over(
        self, me: Actor, recipe: Recipe, tell: Callable[[Progress], None], wait: float
    ) -> BuildReport:
        from .upstream import imported

        report = await imported(me, recipe, self.embedders, on_progress=tell, wait=wait)
        message = (
            f"{recipe.what}: taken over from {recipe.upstream}, {report.chunks} chunks; from now on that file is not "
            f"used, {recipe.directory} is"
        )
        me.emit(Warned(code="knowledge_imported", message=message, node=recipe.node))
        return report

    async def _built(
        self,
        me: Actor,
        recipe: Recipe,
        known: Meta | None,
        tell: Callable[[Progress], None],
        *,
        rebuild: bool,
        wait: float,
    ) -> BuildReport:
        if not recipe.documents:
            raise KnowledgeError(f"{recipe.what} names no documents, so there is nothing to build from")
        await self.embedders.prepare(recipe.settled(self.settings).embedding_model, known.model if known else None)
        embedder, settings = self._plan(recipe, known)
        history = self._history(recipe.directory)
        async with aclosing(self._found(me, recipe, recipe.documents, history)) as found:
            report = await building.build(
                me,
                recipe.directory,
                found,
                embedder=embedder,
                splitter=partial(split, size=settings.chunk_size, overlap=settings.chunk_overlap),
                settings=settings,
                recipe=encoded(recipe),
                on_progress=tell,
                rebuild=rebuild,
                wait=wait,
            )
        await trio.to_thread.run_sync(_forget, history)
        return report

    async def renew(self, recipe: Recipe) -> None:
        """If the base is open here, have it read what was built last."""
        if str(recipe.directory) in self._pool:
            async with self.base(recipe) as base:
                await base.refresh()

    async def drop(self, recipe: Recipe) -> None:
        """Remove the base from the disk. Who reads it at this moment reads on.

        Raises:
            KnowledgeBusy: a build of it is running.
        """
        self._pool.retire(str(recipe.directory))
        await building.drop(recipe.directory)
        await trio.to_thread.run_sync(_forget, self._history(recipe.directory))

    async def changes(self, me: Actor, recipe: Recipe, *, pages: bool = False) -> Changes:
        """What has changed since the base was built.

        Args:
            pages: look at pages, and at what loaders make of other things than files, as well.

        Raises:
            KnowledgeMissing: nothing was built.
        """
        recipe = await _filled(recipe)
        if not recipe.documents:
            return Changes()
        specs = [spec for spec in recipe.documents if pages or self._is_path(spec)]
        left_out = [parse(spec, self.sources.loaders).target for spec in recipe.documents if spec not in specs]
        async with self.base(recipe) as base:
            await base.refresh()
            async with aclosing(self._found(me, recipe, specs, None)) as found:
                seen = await changes(base, _with(found, left_out))
        return msgspec.structs.replace(
            seen,
            removed=tuple(name for name in seen.removed if pages or "://" not in name),
            unreadable=tuple(each for each in seen.unreadable if each.reason != _LEFT_OUT),
        )

    async def changes_lately(self, me: Actor, recipe: Recipe) -> Changes:
        """What has changed, from a look a moment ago if there was one: a hundred runs that begin at once look once."""
        now = trio.current_time()
        then, seen = self._seen.get(recipe, (-math.inf, None))
        if seen is None or now - then > LATELY:
            try:
                seen = await self.changes(me, recipe)
            except trio.Cancelled:  # it takes too long: a hundred runs needn't all try
                self._seen[recipe] = trio.current_time(), Changes()
                raise
            self._seen[recipe] = trio.current_time(), seen
        return seen

    # --- looking things up ---------------------------------------------------------------------------------------

    async def retrieve(
        self,
        me: Actor,
        recipe: Recipe,
        query: str,
        *,
        top_k: int | None = None,
        filters: Sequence[str] = (),
        min_score: float = 0.0,
        mode: Mode = "hybrid",
        rerank: bool = True,
    ) -> Retrieved:
        """What the base knows about a query; see `Base.retrieve`.

        Args:
            me: on whose behalf the models work.
            top_k: chunks to find; None for what the recipe, else the settings say.
            filters: patterns of sources, of which one must fit.
            min_score: hits must have more.
            mode: by what is looked for.
            rerank: have the recipe's reranker, if it has one, look again at what was found.

        Raises:
            KnowledgeMissing: nothing was built.
            KnowledgeError: the base is broken.
            ConfigError, CredentialsError, UpstreamError: the model is not available.
        """
        began = trio.current_time()
        settled = (await _filled(recipe)).settled(self.settings)
        text = as_query(query)
        async with self.base(recipe) as base:
            if not text or not base.meta.chunks:
                return Retrieved()
            vector: Floats | None = None
            model = ""
            while mode != "keyword" and model != base.meta.model:  # it may be built anew meanwhile
                model = base.meta.model
                embedder = await self.embedders.ready(model, batch=settled.batch_size)
                [vector] = await embedder.embed(me, [text], query=True)
            await self.embedders.prepare(settled.reranker_model)
            reranker = self.embedders.reranker(settled.reranker_model) if rerank and settled.reranker_model else None
            found = await base.retrieve(
                text if mode != "vector" else "",
                vector,
                top_k=top_k or settled.top_k or TOP_K,
                filters=filters,
                min_score=min_score,
                rerank=partial(reranker.rerank, me, text) if reranker else None,
            )
        if me.stream.heard:
            me.emit(
                KnowledgeRetrieved(
                    what=recipe.what,
                    query=len(query),
                    chunks=len(found.chunks),
                    sources=found.sources,
                    seconds=trio.current_time() - began,
                )
            )
        return found

    @asynccontextmanager
    async def base(self, recipe: Recipe) -> AsyncIterator[Base]:
        """The open base, shared with all other runs.

        Raises:
            KnowledgeMissing: nothing was built.
            KnowledgeError: it is broken.
        """
        lease = self._pool.lease(str(recipe.directory))
        try:
            base = await lease.acquire()
        except ActorFailed as failed:
            if isinstance(failed.__cause__, CallboardError):
                raise failed.__cause__ from failed
            raise
        try:
            yield base
        finally:
            lease.release()

    # --- how it is built -----------------------------------------------------------------------------------------

    def _plan(self, recipe: Recipe, known: Meta | None) -> tuple[Embedder, Settings]:
        if known is None:
            settled = recipe.settled(self.settings)
            model = settled.embedding_model
            suits = self.embedders.chunk_size(model) if model else None
            default = Settings() if suits is None else Settings(chunk_size=suits)
        else:
            settled, model, default = recipe, recipe.embedding_model or known.model, known.settings
        embedder = self.embedder(model, batch=recipe.batch_size)
        if settled.language is not None:
            default = msgspec.structs.replace(default, language=settled.language)
        if settled.chunk_size is None and settled.chunk_overlap is None:
            return embedder, default
        size, overlap = settled.chunk_size or default.chunk_size, settled.chunk_overlap
        if overlap is not None and overlap >= size:
            raise KnowledgeError(f"{recipe.what}: chunk_overlap {overlap} must be less than chunk_size {size}")
        return embedder, msgspec.structs.replace(default, chunk_size=size, chunk_overlap=overlap)

    def _found(
        self, me: Actor, recipe: Recipe, specs: Sequence[str], history: Path | None
    ) -> AsyncGenerator[Finding, None]:
        return gather(me, specs, base=recipe.base, environ=self.environ, settings=self.sources, history=history)

    def _is_path(self, spec: str) -> bool:
        try:
            return parse(spec, self.sources.loaders).kind == "path"
        except UsageError:
            return True  # `gather` says what is wrong with it

    def _history(self, directory: Path) -> Path:
        name = hashlib.sha256(str(directory).encode(errors="surrogateescape")).hexdigest()[:16]
        return cache_dir(self.environ) / "knowledge" / "trails" / name


async def _filled(recipe: Recipe) -> Recipe:
    """With the word of Loki's own file for what it does not say, if there is one. The model is the base's to say."""
    if recipe.upstream is None or not recipe.upstream.is_file():
        return recipe
    from .loki_file import read_head

    head = await trio.to_thread.run_sync(read_head, recipe.upstream)
    return recipe if head is None else head.filling(recipe)


_LEFT_OUT = "not looked at"


async def _with(found: AsyncIterator[Finding], left_out: Sequence[str]) -> AsyncIterator[Finding]:
    for name in left_out:
        yield Unreadable(source=name, reason=_LEFT_OUT)
    async for finding in found:
        yield finding


@asynccontextmanager
async def _opened(_: Actor, directory: str) -> AsyncIterator[Base]:
    base = await Base.open(Path(directory))
    try:
        yield base
    finally:
        base.close()


def _forget(history: Path) -> None:
    shutil.rmtree(history, ignore_errors=True)
