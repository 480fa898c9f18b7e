"""What a pool counts."""

from __future__ import annotations

import msgspec


class PoolStatistics(msgspec.Struct, kw_only=True):
    """What a pool did so far, and what it holds now.

    Attributes:
        opened: resources opened.
        hits: leases that found their resource open.
        revived: those of them that found it idle.
        misses: leases that waited for a start.
        seconds_waited: how long they did, all together.
        waits: starts that waited for room (`max_open`).
        failed_starts: starts that crashed.
        lost: resources that ended by themselves after they were opened.
        evicted_idle: closed because they were unused for `idle_ttl`.
        evicted_lru: closed as the least recently used, for `max_idle` or to make room.
        health_ok: checks passed.
        health_failed: checks failed, each the end of its resource.
        leased: resources with a lease.
        idle: open resources without one.
    """

    opened: int = 0
    hits: int = 0
    revived: int = 0
    misses: int = 0
    seconds_waited: float = 0.0
    waits: int = 0
    failed_starts: int = 0
    lost: int = 0
    evicted_idle: int = 0
    evicted_lru: int = 0
    health_ok: int = 0
    health_failed: int = 0
    leased: int = 0
    idle: int = 0
