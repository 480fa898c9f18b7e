"""Replacement for DevAll's `utils.function_catalog`: metadata in annotations of parameters."""

from __future__ import annotations

import dataclasses
import typing


@dataclasses.dataclass(frozen=True)
class ParamMeta:
    """Metadata in `Annotated[str, ParamMeta(description=...)]`, which is parsed from the file's text and not read
    here.
    """

    description: typing.Optional[str] = None
    enum: typing.Optional[typing.Sequence[typing.Any]] = None
