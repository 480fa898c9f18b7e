"""Knowledge service of a process: opens each base once for all runs, and builds bases on demand.

Open bases are kept in the kernel's pool, one per directory, shared by all agents that read it. Idle bases are closed
after a while. All blocking work runs in threads of the base, of the embedder, and of the source readers.

A base is queried with the model that it was built with, even if the settings name another one now. Settings that a
recipe leaves open come from the user's settings for a new base, and from the last build for an existing one. So a
change of settings never changes an existing base silently.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final
from weakref import WeakValueDictionary

import msgspec
import trio

from ....protocol.errors import ActorFailed, CallboardError, KnowledgeError, UsageError
from ....protocol.events import KnowledgeRetrieved, Warned
from ....protocol.knowledge import Retrieved, Unreadable
from ....protocol.settings import Settings as UserSettings
from ....supervisors.pool import Pool, PoolStatistics
from ...io.directories import cache_dir
from .base import build as building
from .base.base import TOP_K, KnowledgeBase, SourceChanges, changes
from .base.layout import BaseLayout, knowledge_errors
from .base.model import BaseSettings, BuildProgress, BuildReport, GenerationMeta
from .base.passages import as_query
from .embed.cache import EmbeddingCache, default_path
from .embed.embedder import Embedder
from .embed.embedders import DEFAULT, Embedders
from .progress import report_built, telling
from .recipe import Recipe, encoded
from .sources.found import Finding, SourceSettings
from .sources.gather import gather
from .sources.specs import parse
from .split import split

if TYPE_CHECKING:
    from ....protocol.chat import TokenUsage
    from ....protocol.events import UsageUpdate
    from ....supervisors.actor import Actor
    from ....supervisors.root import Root
    from ...io.vault.vault import Vault
    from ..models.call import Emitter
    from ..models.limiter import Gates
    from ..spending.accounts import Account
    from ..spending.meter import Meter
    from .base.model import Floats

IDLE = 300.0
"""Seconds after which an idle base is closed."""

LATELY = 2.0
"""Seconds for which the changes found since a build are cached."""

Mode = Literal["hybrid", "vector", "keyword"]


class Knowledge:
    """All knowledge bases of a process.

    Args:
        owner: parent of the actors that are started.
        settings: settings of `config.yaml`.
        environ, vault: keys, proxies, cache directory, and environment of loaders; secrets that clients and loaders
            name.
        gates: the limiters of models, shared with chat requests.

    Attributes:
        charges: attribution of the cost of model requests.
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
        self.charges: Charges = Charges()
        cache = EmbeddingCache(default_path(environ))
        self.embedders: Embedders = Embedders(
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
        self.sources: SourceSettings = SourceSettings(loaders=loaders, allow_private=private, vault=vault)
        self._pool: Pool[str, KnowledgeBase] = Pool(owner, _opened, name="knowledge", idle_ttl=IDLE)
        self._seen: dict[Recipe, tuple[float, SourceChanges]] = {}
        self._turns: WeakValueDictionary[Path, trio.Lock] = WeakValueDictionary()

    async def aclose(self) -> None:
        """Close connections and caches. Bases and engines end with their owner."""
        await self.embedders.aclose()

    @property
    def statistics(self) -> PoolStatistics:
        """Statistics of the pool of open bases."""
        return self._pool.statistics

    @property
    def default_model(self) -> str:
        """Id of the embedding model that is used if a recipe names none."""
        return self.settings.rag_embedding_model or DEFAULT

    def embedder(self, model: str | None = None, *, batch: int | None = None) -> Embedder:
        """Return the embedder for a model, or else for `rag_embedding_model`, or else the default that needs no key."""
        named = model or self.settings.rag_embedding_model
        return self.embedders.of(named, batch=batch) if named else self.embedders.of(batch=batch)

    # --- building ------------------------------------------------------------------------------------------------

    def turn(self, recipe: Recipe) -> trio.Lock:
        """Return the lock that prevents two tasks of this process from preparing the same base at once."""
        return self._turns.setdefault(recipe.directory, trio.Lock())

    async def meta(self, recipe: Recipe) -> GenerationMeta | None:
        """Return the metadata of the base on disk; None if there is none.

        Raises:
            KnowledgeError: the base is broken.
        """
        layout = BaseLayout(recipe.directory)

        def read_meta() -> GenerationMeta | None:
            with knowledge_errors(layout):
                number = layout.number()
                return layout.meta(number) if number else None

        return await trio.to_thread.run_sync(read_meta)

    async def build(
        self,
        me: Actor,
        recipe: Recipe,
        *,
        rebuild: bool = False,
        wait: float = 0.0,
        on_progress: Callable[[BuildProgress], None] | None = None,
    ) -> BuildReport:
        """Build the base, or update it. If there is no base yet but a file of Loki's, that is imported.

        Args:
            me: owner of the reading processes, and source of the progress events.
            rebuild: reuse nothing of the existing base.
            wait: seconds to wait for another builder.
            on_progress: called with each progress report, without a rate limit.

        Raises:
            KnowledgeBusy: another process builds the base for longer than `wait`.
            KnowledgeError: the base can't be built from the recipe.
            ConfigError, CredentialsError, UpstreamError: the embedding model is not available.
        """
        known = None if rebuild else await self.meta(recipe)
        tell = telling(me, recipe.what, on_progress)
        if known is None and not rebuild and await self.takes_over(recipe):
            report = await self._taken_over(me, recipe, tell, wait)
        else:
            report = await self._built(me, await _filled(recipe), known, tell, rebuild=rebuild, wait=wait)
        # The cached comparison is outdated now.
        self._seen.pop(recipe, None)
        await self.renew(recipe)
        report_built(me, recipe, report)
        return report

    async def takes_over(self, recipe: Recipe) -> bool:
        """Return whether the recipe has a file of Loki's, which the first build imports."""
        if recipe.upstream is None or not recipe.upstream.is_file():
            return False
        from .loki_import import is_loki_file

        return await trio.to_thread.run_sync(is_loki_file, recipe.upstream)

    async def _taken_over(
        self, me: Actor, recipe: Recipe, tell: Callable[[BuildProgress], None], wait: float
    ) -> BuildReport:
        from .loki_import import imported

        report = await imported(me, recipe, self.embedders, on_progress=tell, wait=wait)
        message = (
            f"{recipe.what}: imported the chunks of {recipe.upstream} ({report.chunks}); from now on "
            f"{recipe.directory} is used instead of that file"
        )
        me.emit(Warned(code="knowledge_imported", message=message, node=recipe.node))
        return report

    async def _built(
        self,
        me: Actor,
        recipe: Recipe,
        known: GenerationMeta | None,
        tell: Callable[[BuildProgress], None],
        *,
        rebuild: bool,
        wait: float,
    ) -> BuildReport:
        if not recipe.documents:
            raise KnowledgeError(
                f"{recipe.what} lists no documents, so there is nothing to build a knowledge base from"
            )
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
        """Switch the base to its newest generation, if this process has it open."""
        if str(recipe.directory) in self._pool:
            async with self.base(recipe) as base:
                await base.refresh()

    async def drop(self, recipe: Recipe) -> None:
        """Remove the base from the disk. Open readers can still read it.

        Raises:
            KnowledgeBusy: a build of it is running.
        """
        self._pool.retire(str(recipe.directory))
        await building.drop(recipe.directory)
        await trio.to_thread.run_sync(_forget, self._history(recipe.directory))

    async def changes(self, me: Actor, recipe: Recipe, *, pages: bool = False) -> SourceChanges:
        """Return the changes since the base was built.

        Args:
            pages: also compare pages, and loader output that is not from files.

        Raises:
            KnowledgeMissing: there is no base.
        """
        recipe = await _filled(recipe)
        if not recipe.documents:
            return SourceChanges()
        # Sources that are not examined must not count as removed. They are passed as unreadable, and these reports are
        # dropped below.
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

    async def changes_lately(self, me: Actor, recipe: Recipe) -> SourceChanges:
        """Return the changes, cached for `LATELY` seconds: a hundred runs that start at once compare once."""
        now = trio.current_time()
        then, seen = self._seen.get(recipe, (-math.inf, None))
        if seen is None or now - then > LATELY:
            try:
                seen = await self.changes(me, recipe)
            except trio.Cancelled:  # It takes too long: other runs must not all try the same.
                self._seen[recipe] = trio.current_time(), SourceChanges()
                raise
            self._seen[recipe] = trio.current_time(), seen
        return seen

    # --- retrieval -----------------------------------------------------------------------------------------------

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
        """Return the passages of the base for a query; see `KnowledgeBase.retrieve`.

        Args:
            me: actor on whose behalf the models work.
            top_k: chunks to find; None for the value of the recipe, or else of the settings.
            filters: patterns of sources; one of them must match.
            min_score: hits must score higher than this.
            mode: indexes to search: words, vectors, or both.
            rerank: use the recipe's reranker, if it has one.

        Raises:
            KnowledgeMissing: there is no base.
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
            # the base may be rebuilt with another model during the request
            while mode != "keyword" and model != base.meta.model:
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
    async def base(self, recipe: Recipe) -> AsyncIterator[KnowledgeBase]:
        """Lease the open base for the block; it is shared with all other runs.

        Raises:
            KnowledgeMissing: there is no base.
            KnowledgeError: the base is broken.
        """
        lease = self._pool.lease(str(recipe.directory))
        try:
            base = await lease.acquire()
        except ActorFailed as failed:
            # The pool wraps errors of opening a base; callers expect the original.
            if isinstance(failed.__cause__, CallboardError):
                raise failed.__cause__ from failed
            raise
        try:
            yield base
        finally:
            lease.release()

    # --- build settings ------------------------------------------------------------------------------------------

    def _plan(self, recipe: Recipe, known: GenerationMeta | None) -> tuple[Embedder, BaseSettings]:
        if known is None:
            settled = recipe.settled(self.settings)
            model = settled.embedding_model
            suits = self.embedders.chunk_size(model) if model else None
            default = BaseSettings() if suits is None else BaseSettings(chunk_size=suits)
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
            return True  # `gather` reports the error

    def _history(self, directory: Path) -> Path:
        name = hashlib.sha256(str(directory).encode(errors="surrogateescape")).hexdigest()[:16]
        return cache_dir(self.environ) / "knowledge" / "trails" / name


async def _filled(recipe: Recipe) -> Recipe:
    """Return the recipe with unset fields filled from Loki's file, if there is one, except the model."""
    if recipe.upstream is None or not recipe.upstream.is_file():
        return recipe
    from .loki_import import read_head

    head = await trio.to_thread.run_sync(read_head, recipe.upstream)
    return recipe if head is None else head.filling(recipe)


_LEFT_OUT = "was not read"


async def _with(found: AsyncIterator[Finding], left_out: Sequence[str]) -> AsyncIterator[Finding]:
    for name in left_out:
        yield Unreadable(source=name, reason=_LEFT_OUT)
    async for finding in found:
        yield finding


@asynccontextmanager
async def _opened(_: Actor, directory: str) -> AsyncIterator[KnowledgeBase]:
    base = await KnowledgeBase.open(Path(directory))
    try:
        yield base
    finally:
        base.close()


def _forget(history: Path) -> None:
    shutil.rmtree(history, ignore_errors=True)


# --- cost attribution: requests are charged to a run, or to a subject for work outside of runs


_own_meter: ContextVar[Meter | None] = ContextVar("meter", default=None)
"""Meter for work that belongs to no run; overrides the meter of the run."""

_part_account: ContextVar[Account | None] = ContextVar("account", default=None)
"""Account of an agent or a node of the run, which is charged instead of the run's account."""


@final
class Charges:
    """Attribution of the cost of knowledge requests: the meter and the account that each request is charged to.

    A request is charged to the meter of its run. Inside `on` it is charged to another meter, and inside `within` it is
    reserved in another account.
    """

    def __init__(self) -> None:
        self._runs: dict[str, tuple[Meter, bool]] = {}

    def begin_run(self, run: str, meter: Meter, *, may_wait: bool = True) -> None:
        """Charge the requests of a run to this meter, until `end_run`.

        Args:
            may_wait: requests of the run may wait for the limiter.
        """
        self._runs[run] = meter, may_wait

    def end_run(self, run: str) -> None:
        self._runs.pop(run, None)

    @contextmanager
    def on(self, meter: Meter) -> Iterator[None]:
        """Charge requests in the block, which belong to no run, to this meter."""
        before = _own_meter.set(meter)
        try:
            yield
        finally:
            _own_meter.reset(before)

    @contextmanager
    def within(self, account: Account | None) -> Iterator[None]:
        """Reserve requests in the block in this account, which is below the run's; None for the account of the run."""
        before = _part_account.set(account)
        try:
            yield
        finally:
            _part_account.reset(before)

    def may_wait(self, me: Emitter) -> bool:
        """Return whether requests of this actor may wait for the limiter, as its run has set; True outside of runs."""
        return self._found(me)[1]

    def account(self, me: Emitter) -> Account | None:
        """Return the account for requests of this actor; None if nothing is limited."""
        account = _part_account.get()
        if account is not None:
            return account
        meter, _ = self._found(me)
        return None if meter is None else meter.account

    def used(self, me: Emitter, model: str, tokens: TokenUsage, cost: float | None) -> UsageUpdate | None:
        """Count the usage of a request on its meter. Return the totals of the run; None for work outside of runs."""
        meter, _ = self._found(me)
        totals = None if meter is None else meter.count(model, tokens, cost)
        return totals if _own_meter.get() is None else None

    def _found(self, me: Emitter) -> tuple[Meter | None, bool]:
        meter = _own_meter.get()
        if meter is not None:
            return meter, True
        stream = getattr(me, "stream", None)
        return (None, True) if stream is None else self._runs.get(stream.run, (None, True))
