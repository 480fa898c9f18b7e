"""Block `durable:` of `config.yaml`: which runs are durable, and how they are resumed and retained.

durable:
  by_default: false        # only `--durable` keeps a run
  on_unknown: ask          # a person says what becomes of a call that was under way
  dormant_after: null      # a run that waits for people alone stays in memory
  resume: ask              # `callboard serve` goes on with what it had under way: auto, ask or never
  keep_days: 7
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from ..repeats import OnUnknown

Resume: TypeAlias = Literal["auto", "ask", "never"]

GIB = 1024**3


class DurableSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole block."""

    by_default: Annotated[
        bool, Meta(description="Whether runs are kept that no flag says it of; `--durable` and `--ephemeral` win.")
    ] = True
    resume: Annotated[
        Resume,
        Meta(
            description="What a server does at its start with runs whose server was killed: goes on with them, lists "
            "them for a person, or leaves them."
        ),
    ] = "auto"
    keep_days: Annotated[
        float, Meta(ge=0, le=36_500, description="How long what is kept of a run that is over stays; 0: for ever.")
    ] = 30.0
    max_bytes: Annotated[
        int, Meta(ge=0, description="What is kept may take; the oldest runs that are over go first. 0: any size.")
    ] = GIB
    dormant_after: Annotated[
        Annotated[float, Meta(ge=0, le=86_400)] | None,
        Meta(
            description="Seconds after which a server plays a run no more that waits for people alone, until an answer "
            "comes; null: never.",
        ),
    ] = 60.0
    on_unknown: Annotated[
        OnUnknown | None,
        Meta(
            description="What becomes of calls that were under way at a kill, where no flag and no agent's file says."
        ),
    ] = None
