"""Block `durable:` of `config.yaml`: which runs are durable, and how they are resumed and retained.

For example, with a value other than the default for each key:

    durable:
      by_default: false        # only runs with `--durable` are durable
      on_unknown: ask          # the user decides about a call that was under way at a kill
      dormant_after: null      # a run that only waits for the user stays in memory
      resume: ask              # runs of a killed `callboard serve` at its next start: auto, ask or never
      keep_days: 7             # journals of completed runs
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
        bool, Meta(description="Make runs durable by default; `--durable` and `--ephemeral` take precedence.")
    ] = True
    resume: Annotated[
        Resume,
        Meta(
            description="What a server does at its start with runs whose server was killed: goes on with them, lists "
            "them for a person, or leaves them."
        ),
    ] = "auto"
    keep_days: Annotated[
        float, Meta(ge=0, le=36_500, description="Days to keep the journal of a completed run; 0: for ever.")
    ] = 30.0
    max_bytes: Annotated[
        int,
        Meta(ge=0, description="Maximum size of journals; the oldest completed runs are removed first. 0: no limit."),
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
            description="Treatment of calls that were under way at a kill, without a flag and a "
            "setting of the agent's file."
        ),
    ] = None
