"""Memories of one graph while it runs: its stores, opened at their first use, and their use by nodes.

    agent    read at every stage that can use it (not `finished`), or at the stages of `retrieve_stage`
    human    read before it asks, unless `retrieve_stage` names later stages only

A failed write is only a warning, because the node's output exists anyway. A failed read fails the node, or counts
as empty, depending on the dialect.

A store without a path ends with the run, or (`stores_persist`) is in the configuration directory. There each store
of each graph of each file has its own path. Relative paths start from the workflow's directory.

A durable run journals each read, and writes only after all earlier rows are on disk. After a crash it repeats a
write of unknown outcome under the same key, so the text is stored once. A service without keys is not called again;
a warning says so.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias, assert_never, final

import trio

from .....protocol.errors import BudgetReached, CallboardError, ShuttingDown, TurnsReached
from .....protocol.events import KnowledgeRetrieved, Warned
from .....protocol.workflow.model import (
    AgentConfig,
    Blackboard,
    Embedding,
    FileStore,
    Graph,
    HumanConfig,
    Mem0Store,
    MemoryUse,
    Node,
    SimpleStore,
    Stage,
)
from .....protocol.workflow.model import Store as Described
from .....supervisors import Actor
from ....work.journal.actor_journal import noted, scope_of
from ....work.labels.labels import Labels
from ....work.models.providers import client_of
from ....work.playback import OutsideEffect, whole
from ..messages import Message
from ..plan import WorkflowRun
from .notebook import Notebook
from .stores import MOST, BlackboardStore, Documents, Mem0, MemoryStore, OrWords, SimpleMemory

Recalled: TypeAlias = list[tuple[str, list[str]]]
"""Texts that stores returned, with the name of each store."""

BY_DEFAULT: tuple[Stage, ...] = ("pre_gen_thinking", "gen", "post_gen_thinking")
"""Default stages at which an agent's memory is read; a read at `finished` would be useless."""

AUTO = "auto"
"""Path that means no path."""

EVERYTHING = -1.0
"""Threshold that every text reaches: no cosine is lower."""

_ENDS_THE_RUN = (BudgetReached, TurnsReached, ShuttingDown)


@final
class Memories:
    """Memory stores of one run of a graph, opened at their first use; `close` closes them."""

    def __init__(self, run: WorkflowRun, graph: Graph, home: Path | None) -> None:
        self._run = run
        self._graph = graph
        self._of_run = home
        self._homes: dict[str, str] = {}
        self._described = {store.name: store for store in graph.memory}
        self._open: dict[str, MemoryStore | None] = {}

    async def choose_paths(self, me: Actor) -> None:
        """Choose the paths of stores without one.

        A durable run journals this choice, so that it finds its stores even if its file is renamed later.
        """
        named = {name: self._home(name, ending) for name, ending in self._without_path()}
        if not named:
            return

        async def chosen() -> dict[str, str]:
            return {name: str(home) for name, home in named.items()}

        self._homes = await noted(me, "homes of memories", dict[str, str], chosen)

    def close(self) -> None:
        opened, self._open = self._open, {}
        for store in opened.values():
            if store is not None:
                store.close()

    async def recall(
        self,
        me: Actor,
        node: Node,
        stage: Stage,
        inputs: Sequence[Message],
        output: str = "",
        *,
        also: Stage | None = None,
    ) -> Recalled:
        """Return the texts of a node's stores for this stage.

        Args:
            output: the node's output, if it exists already.
            also: another stage, which for this node is the same.

        Raises:
            CallboardError: a store cannot be read, and the dialect treats that as a failure.
        """
        found: Recalled = []
        for use in _uses(node):
            wanted = use.read and not {stage, also}.isdisjoint(_stages(node, use))
            store = self._store(use.name) if wanted else None
            if store is None:
                continue
            text = _exchange_text(inputs, output)
            try:
                what = f"{use.name} at {stage}"
                work = partial(self._recalled, me, use, store, text, what)
                items = await noted(me, what, list[str], work)
            except _ENDS_THE_RUN:
                raise
            except CallboardError as error:
                if self._run.plan.rules.memories_must_answer:
                    raise
                self._warn(me, node, use.name, "could not be read", error)
                continue
            flow = self._run.context.flow
            if items and flow is not None:  # other runs have written the texts, so they are untrusted and private
                way = f"the memory {use.name}"
                flow.add(Labels(untrusted=(way,), private=(way,)))
            found.append((use.name, items))
        return found

    async def remember(self, me: Actor, node: Node, inputs: Sequence[Message], output: str) -> None:
        """Write a node's inputs and output to its stores; a store that cannot be written only causes a warning.

        Raises:
            BudgetReached, TurnsReached, ShuttingDown: the run has to end.
        """
        for use in _uses(node):
            store = self._store(use.name) if use.write else None
            if store is None:
                continue
            try:
                await self._write(me, node, use, store, _exchange_text(inputs), output)
            # A budget or a shutdown must end the run and not become a warning.
            except _ENDS_THE_RUN:
                raise
            except CallboardError as error:
                self._warn(me, node, use.name, "could not be written", error)

    async def _write(self, me: Actor, node: Node, use: MemoryUse, store: MemoryStore, given: str, said: str) -> None:
        scope, what = scope_of(me), f"the memory '{use.name}'"

        async def written(key: str | None = None) -> None:
            effect = OutsideEffect("memory written", use.name, {"given": given, "said": said})
            await whole(me, effect, type(None), partial(store.remember, me, given, said, key))

        if scope is None:
            await written()
        elif store.repeatable:
            key = await noted(me, what, str, new_key)
            # The key must be on disk before the write, or a later incarnation would write under another key.
            await scope.run.barrier()
            await written(key)
        elif scope.ended(what) is None:
            if scope.intended(what):
                text = f"the program ended while it wrote {what}; the write may have succeeded, so it is not repeated"
                me.emit(Warned(code="memory", message=text, node=node.id))
            else:
                await scope.intend(what)
                await written()
            # Marks the end: later incarnations neither write again nor repeat the warning.
            scope.note(what, None)

    async def _recalled(self, me: Actor, use: MemoryUse, store: MemoryStore, text: str, what: str) -> list[str]:
        began = trio.current_time()
        threshold = use.similarity_threshold
        if self._run.plan.rules.zero_finds_all and threshold <= 0:
            threshold = EVERYTHING
        live = partial(store.recall, me, text, top_k=use.top_k, threshold=threshold)
        effect = OutsideEffect("memory", what, {"text": text, "top_k": use.top_k, "threshold": threshold})
        items = await whole(me, effect, list[str], live)
        if me.stream.heard and not isinstance(store, Documents):  # a knowledge base emits this event itself
            me.emit(
                KnowledgeRetrieved(
                    what=f"memory '{use.name}'",
                    query=len(text),
                    chunks=len(items),
                    sources=(use.name,) if items else (),
                    seconds=trio.current_time() - began,
                )
            )
        return items

    def _warn(self, me: Actor, node: Node, name: str, what: str, error: CallboardError) -> None:
        me.emit(Warned(code="memory", message=f"the memory '{name}' {what}: {error}", node=node.id))

    def _store(self, name: str) -> MemoryStore | None:
        if name not in self._open:
            described = self._described.get(name)
            self._open[name] = None if described is None else self._made(described)
        return self._open[name]

    def _made(self, store: Described) -> MemoryStore | None:
        run, rules, name = self._run, self._run.plan.rules, store.name
        match store.config:
            case Blackboard() as config:
                path = self._path(config.memory_path) or self._passing(name)
                return BlackboardStore(Notebook(path, most=config.max_items, name=name))
            case SimpleStore() | FileStore() if store.config.embedding is None and not rules.bare_stores_work:
                return None
            case SimpleStore() as config:
                path = self._path(config.memory_path)
                if path is None and rules.stores_persist:
                    path = Path(self._homes[name])
                notes = Notebook(path or self._passing(name), most=MOST, name=name)
                return SimpleMemory(notes, self._vectors(name, config.embedding), whole=rules.memories_are_whole)
            case FileStore() as config:
                embedding = config.embedding
                return Documents(
                    name=name,
                    context=run.context,
                    sources=config.file_sources,
                    directory=self._path(config.index_path or config.memory_path) or Path(self._homes[name]),
                    base=run.plan.file.parent,
                    model=None if embedding is None else partial(self._model, embedding=embedding),
                    words=self._vectors(name, embedding),
                )
            case Mem0Store() as config:
                return Mem0(config, run.context.environ)
        assert_never(store.config)

    def _path(self, given: str | None) -> Path | None:
        if not given or given == AUTO:
            return None
        return self._run.plan.file.parent / Path(given).expanduser()

    def _without_path(self) -> Iterator[tuple[str, str]]:
        """Yield the stores that are in the configuration directory, with the endings of their file names."""
        for store in self._graph.memory:
            match store.config:
                case SimpleStore() as config:
                    if self._run.plan.rules.stores_persist and self._path(config.memory_path) is None:
                        yield store.name, ".memory"
                case FileStore() as config:
                    if self._path(config.index_path or config.memory_path) is None:
                        yield store.name, ".kb"

    def _passing(self, name: str) -> Path | None:
        """Return the path of a store that ends with the run; None to keep it in memory."""
        return None if self._of_run is None else self._of_run / f"{_digest(name)}.memory"

    def _home(self, name: str, ending: str) -> Path:
        # The full path keeps stores of equally named files apart.
        digest = _digest(f"{self._run.plan.file.absolute()}\0{self._graph.source.file}\0{self._graph.path}\0{name}")
        safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)[:60]
        return self._run.context.config_dir / "memory" / f"{self._run.plan.file.stem[:60]}-{digest}" / f"{safe}{ending}"

    def _vectors(self, name: str, embedding: Embedding | None) -> OrWords:
        named = None if embedding is None else partial(self._model, embedding=embedding)
        return OrWords(self._run.context, name, named, self._run.plan.rules.words_stand_in)

    def _model(self, me: Actor, embedding: Embedding) -> str:
        context = self._run.context
        client = client_of(embedding.provider, embedding.base_url, embedding.api_key, context.settings, context.environ)
        provider = embedding.provider if client is None else context.knowledge.of(me).embedders.adopt(client)
        return f"{provider}:{embedding.model}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12]


async def new_key() -> str:
    """Return a random key for a single write."""
    return secrets.token_hex(8)


def _uses(node: Node) -> tuple[MemoryUse, ...]:
    return node.config.memories if isinstance(node.config, AgentConfig | HumanConfig) else ()


def _stages(node: Node, use: MemoryUse) -> Sequence[Stage]:
    if isinstance(node.config, AgentConfig):
        return BY_DEFAULT if use.retrieve_stage is None else use.retrieve_stage
    early = use.retrieve_stage is None or not {"pre_gen_thinking", "gen"}.isdisjoint(use.retrieve_stage)
    # users decide for themselves: texts that are read after the question come too late
    return ("gen",) if early else ()


def _exchange_text(inputs: Sequence[Message], output: str = "") -> str:
    return "\n\n".join(text for text in (*(message.text for message in inputs), output) if text)
