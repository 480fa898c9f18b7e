"""The start of a build: the generation before, and the rest of an interrupted build. All of it blocks."""

from __future__ import annotations

from typing import final

from .....protocol.errors import KnowledgeError
from .catalogue import Catalogue, Known
from .model import Meta, Settings
from .places import Places
from .troubles import told
from .words import check_language
from .work import Work, begin, unfinished


@final
class Ground:
    """See the module.

    Attributes:
        settings: what is built with.
        number: the current generation; 0 if there is none.
        meta: of the generation that is built upon; None if it is none.
        before: its sources.
        known: the sources with what an interrupted build has read already.
        work: the unfinished generation; None until the first difference shows.
    """

    def __init__(
        self, places: Places, model: str, dimension: int | None, settings: Settings | None, *, rebuild: bool
    ) -> None:
        self._places = places
        self._model = model
        with told(places):
            self.number = places.settle(rebuild=rebuild)
            places.sweep()
        base = 0 if rebuild else self.number
        self.meta: Meta | None = places.meta(base) if base else None
        with told(places):
            self.work: Work | None = unfinished(places, self.number, model, settings, rebuild=rebuild)
        if self.work is not None and not self.work.plan.base:
            self.meta = None  # a rebuild was interrupted, and is gone on with
        if self.work is not None:
            self.settings = self.work.plan.settings
        else:
            self.settings = settings or (self.meta.settings if self.meta else Settings())
            check_language(self.settings.language)
        if self.meta is not None:
            self._check(self.meta, dimension)
        self.before: dict[str, Known] = {}
        with told(places):
            if self.meta is not None:
                catalogue = Catalogue(places.generation(self.meta.generation) / "catalogue.sqlite")
                self.before = catalogue.known()
                catalogue.close()
            if self.meta is None or self._resplit(self.meta):
                self.begin()
            self.known = self.work.known() if self.work else self.before

    def begin(self) -> Work:
        """The unfinished generation, which is made if there is none yet."""
        if self.work is None:
            base = self.meta.generation if self.meta else 0
            resplit = self.meta is not None and self._resplit(self.meta)
            self.work = begin(self._places, base, self._model, self.settings, resplit=resplit)
        return self.work

    def _resplit(self, meta: Meta) -> bool:
        return not self.settings.splits_as(meta.settings)

    def _check(self, meta: Meta, dimension: int | None) -> None:
        """That the generation before can be gone on with."""
        for what, was, wanted in (
            ("model", meta.model, self._model),
            ("language", meta.settings.language, self.settings.language),
            ("dimension", meta.dimension, dimension if dimension and meta.dimension else meta.dimension),
        ):
            if was != wanted:
                directory = self._places.directory
                raise KnowledgeError(
                    f"{directory} was built with {what} {was!r}, and is to be built with {wanted!r}; to change that for"
                    f" all of it, run: callboard kb rebuild {directory}"
                )
