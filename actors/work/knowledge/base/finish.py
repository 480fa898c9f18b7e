"""The end of a build: the indexes of the new generation, and the swap. What is killed here is made again from `Work`.

A generator, so that a builder that was cancelled is asked once a second or so, not at the end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from .....protocol.errors import KnowledgeError
from .model import FORMAT, Meta
from .places import sync_all
from .vectors import open_vectors, write_vectors
from .words import Words, write_words
from .work import Work

SLICE = 1_000

UNSEALED = ("plan.json", "meta.json")
"""Files that no reader needs, or that can't tell their own size."""


def finish(work: Work, number: int, dimension: int) -> Iterator[tuple[int, int]]:
    """Make the unfinished generation the current one, of this number. Yields steps done and steps in all.

    Closes `work` when it is done with it.

    Args:
        dimension: of all vectors; 0 if there is none.
    """
    places, plan = work.places, work.plan
    home, before = places.building, places.generation(plan.base) if plan.base else None
    sources, chunks = work.counts()
    total = 2 * chunks
    words = write_words(
        home / "words",
        plan.settings.language,
        before=before / "words" if before else None,
        without=work.touched(),
        added=work.added(SLICE),
    )
    for done in words:
        yield done, total
    vectors = write_vectors(
        home,
        dimension,
        chunks,
        exact_below=plan.settings.exact_below,
        before=before,
        without=work.gone(),
        added=work.vectors(SLICE),
    )
    for done in vectors:
        yield chunks + done, total
    work.close()
    _seal(
        home,
        Meta(
            format=FORMAT,
            generation=number,
            model=plan.model,
            dimension=dimension,
            settings=plan.settings,
            sources=sources,
            chunks=chunks,
            built=time.time(),
        ),
    )
    target = places.generation(number)
    home.rename(target)
    places.swap(number)
    places.drop_work()
    places.sweep()
    yield total, total


def _seal(home: Path, meta: Meta) -> None:
    """Check the indexes against the catalogue, and have all of it on disk before readers see it."""
    found = len(Words(home / "words", meta.settings.language)), len(open_vectors(home))
    if found != (meta.chunks, meta.chunks):
        raise KnowledgeError(
            f"the indexes in {home} are of {found} chunks instead of {meta.chunks}, because the generation before is"
            f" broken; run: callboard kb rebuild {home.parent}"
        )
    (home / "readers").touch()
    sizes = {name: size for name, size in sync_all(home).items() if name not in UNSEALED}
    with (home / "meta.json").open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(meta, files=sizes))))
        file.flush()
        os.fsync(file.fileno())
