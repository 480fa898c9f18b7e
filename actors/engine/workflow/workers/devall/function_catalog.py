"""Stands in for DevAll's `utils.function_catalog`: what annotations of parameters say beside their types."""

from __future__ import annotations

import dataclasses
import typing


@dataclasses.dataclass(frozen=True)
class ParamMeta:
    """In `Annotated[str, ParamMeta(description=...)]`. It is read from the text of the file, not from here."""

    description: typing.Optional[str] = None
    enum: typing.Optional[typing.Sequence[typing.Any]] = None
