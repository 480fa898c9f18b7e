"""Spending in a cluster: the ledger of daily limits, and the usage book. `actors/work/spending` gives them a meaning.

    spend(db, batch)                   one transaction of the ledger; returns the sums of all processes
    add_usage(db, process, 7, sums)    add sums to the book
    usage(db, since, by, key)          read the book

Transactions of the ledger are serialised by a lock. A request to a model is sent once the transaction that reserves its
cost has committed, and that transaction has seen all earlier ones. The lock is acquired and released in one round trip,
so no process waits for another one's network.

If the answer to a commit is lost, the batch is written again. So each batch of a process has a number, `spenders` holds
the number of the last one that took effect, and a batch with a number that is not higher is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from .database import driver

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import psycopg

LEDGER, BOOK = 0x63_61_6C_6D, 0x63_61_6C_6E
"""Advisory locks: of the ledger; and, combined with the process, of one process in the book."""

KEPT_DAYS = 60
"""Days after which a process that has written nothing is removed."""

# All parts of a statement see the snapshot before it. So `before` has the old number, although `mine` writes the new
# one.
_ONCE = """
with before as (select coalesce(max(batch), 0) as batch from callboard.spenders where process = %(process)s),
mine as (
    insert into callboard.spenders(process, batch) values (%(process)s, %(number)s)
    on conflict (process) do update set batch = excluded.batch, seen = now()
        where callboard.spenders.batch < excluded.batch
    returning batch
)
"""
# If the answer to a batch was lost, the next batch contains its entries again, with their old number. They are skipped
# if the lost batch took effect.
_SPENT = (
    _ONCE
    + """
insert into callboard.ledger(day, key, tokens, cost)
select v.day, v.key, sum(v.tokens), sum(v.cost) from mine, before,
    unnest(%(numbers)s::bigint[], %(days)s::text[], %(keys)s::text[], %(tokens)s::bigint[],
        %(costs)s::double precision[]) as v(number, day, key, tokens, cost)
where v.number > before.batch group by v.day, v.key
on conflict (day, key) do update
    set tokens = callboard.ledger.tokens + excluded.tokens, cost = callboard.ledger.cost + excluded.cost
"""
)
_HELD = """
insert into callboard.held(process, id, key, day, tokens, cost)
select s.process, v.id, v.key, %s, v.tokens, v.cost from callboard.spenders s,
    unnest(%s::bigint[], %s::text[], %s::bigint[], %s::double precision[]) as v(id, key, tokens, cost)
where s.process = %s and s.batch = %s
on conflict do nothing
"""
_FOLD = """
with dead as (delete from callboard.held where day < %s returning day, key, tokens, cost)
insert into callboard.ledger(day, key, tokens, cost) select day, key, sum(tokens), sum(cost) from dead group by day, key
on conflict (day, key) do update
    set tokens = callboard.ledger.tokens + excluded.tokens, cost = callboard.ledger.cost + excluded.cost
"""
_PRUNE = """
delete from callboard.ledger
where day < (select distinct day from callboard.ledger order by day desc limit 1 offset %s)
"""
_FIGURES = """
select key, sum(spent)::bigint, sum(spent_cost), sum(held)::bigint, sum(held_cost) from (
    select key, tokens as spent, cost as spent_cost, 0 as held, 0.0::double precision as held_cost
    from callboard.ledger where day = %(day)s
    union all
    select key, 0, 0.0, tokens, cost from callboard.held where process <> %(process)s and day >= %(since)s
) of_day
where %(all)s or key = any(%(keys)s::text[]) group by key
"""
_ADD = (
    _ONCE
    + """
insert into callboard.usage
select v.day, v.key, v.agent, v.model, sum(v.requests), sum(v.input), sum(v.cached), sum(v.output), sum(v.cost),
    sum(v.unpriced)
from mine, before, unnest(%(numbers)s::bigint[], %(days)s::text[], %(keys)s::text[], %(agents)s::text[],
    %(models)s::text[], %(requests)s::bigint[], %(inputs)s::bigint[], %(cached)s::bigint[], %(outputs)s::bigint[],
    %(costs)s::double precision[], %(unpriced)s::bigint[])
    as v(number, day, key, agent, model, requests, input, cached, output, cost, unpriced)
where v.number > before.batch group by v.day, v.key, v.agent, v.model
order by v.day, v.key, v.agent, v.model -- processes that add to the same sums do not lock each other out
on conflict (day, key, agent, model) do update set
    requests = callboard.usage.requests + excluded.requests,
    input_tokens = callboard.usage.input_tokens + excluded.input_tokens,
    cached_tokens = callboard.usage.cached_tokens + excluded.cached_tokens,
    output_tokens = callboard.usage.output_tokens + excluded.output_tokens,
    cost = callboard.usage.cost + excluded.cost, unpriced = callboard.usage.unpriced + excluded.unpriced
"""
)
_OF_ADD = (
    "numbers",
    "days",
    "keys",
    "agents",
    "models",
    "requests",
    "inputs",
    "cached",
    "outputs",
    "costs",
    "unpriced",
)


class Spend(msgspec.Struct, frozen=True, kw_only=True):
    """A batch for the ledger.

    Attributes:
        process, number: the process and the number of its batch.
        day: day to which reservations count; `since`: reservations of other processes count from this day on.
        new_day: the process has not written on this day yet. Its own reservations are moved to it; those older than
            `yesterday` belong to dead processes and count as spent.
        keep_days: days of the ledger that stay.
        held: id, key, tokens, cost of requests in flight; ended: ids of requests that have ended.
        spent: number of the first batch that contained the entry, day, key, tokens, cost.
        keys: keys whose sums are returned; `all`: return all keys.
    """

    process: str
    number: int
    day: str
    since: str
    yesterday: str
    new_day: bool
    keep_days: int
    held: Sequence[tuple[int, str, int, float]]
    ended: Sequence[int]
    spent: Sequence[tuple[int, str, str, int, float]]
    keys: Sequence[str]
    all: bool = False


class Figures(msgspec.Struct, frozen=True):
    """Sums of a key on a day: spent by all processes, and reserved by the other processes."""

    tokens: int
    cost: float
    held_tokens: int
    held_cost: float


def spend(db: psycopg.Connection[Any], batch: Spend) -> dict[str, Figures]:
    """Execute one transaction of the ledger; return the sums of the requested keys that have any."""
    asked = {
        "day": batch.day,
        "since": batch.since,
        "process": batch.process,
        "keys": list(batch.keys),
        "all": batch.all,
    }
    if not (batch.new_day or batch.held or batch.ended or batch.spent):
        found = db.execute(_FIGURES, asked)  # a single statement is consistent without a transaction
    else:
        with db.pipeline(), db.transaction():
            _write(db, batch)
            found = db.execute(_FIGURES, asked)
    return {key: Figures(*sums) for key, *sums in found.fetchall()}


def _write(db: psycopg.Connection[Any], batch: Spend) -> None:
    process, number, day = batch.process, batch.number, batch.day
    db.execute("select pg_advisory_xact_lock(%s)", (LEDGER,))
    if batch.new_day:
        db.execute("update callboard.held set day = %s where process = %s and day < %s", (day, process, day))
        db.execute(_FOLD, (batch.yesterday,))
        db.execute(_PRUNE, (batch.keep_days - 1,))
    names = ("numbers", "days", "keys", "tokens", "costs")
    db.execute(_SPENT, {"process": process, "number": number, **_columns(names, batch.spent)})
    if batch.held:
        ids, keys, tokens, costs = _columns(("id", "key", "tokens", "cost"), batch.held).values()
        db.execute(_HELD, (day, ids, keys, tokens, costs, process, number))
    if batch.ended:
        db.execute("delete from callboard.held where process = %s and id = any(%s)", (process, list(batch.ended)))


def add_usage(db: psycopg.Connection[Any], process: str, number: int, sums: Iterable[tuple[Any, ...]]) -> None:
    """Add sums to the book. Each is the number of the first batch that contained it, then the columns of the table."""
    with db.pipeline(), db.transaction():
        db.execute("select pg_advisory_xact_lock(%s, hashtext(%s))", (BOOK, process))
        db.execute(_ADD, {"process": process, "number": number, **_columns(_OF_ADD, list(sums))})


def usage(db: psycopg.Connection[Any], since: str, by: Sequence[str], key: str | None) -> list[tuple[Any, ...]]:
    """Return the sums in the book from that day on, grouped by these columns; with `key`, of that key only."""
    sql = driver().sql
    names = sql.SQL(", ").join([sql.Identifier(name) for name in by])
    query = sql.SQL(
        "select {}, sum(requests)::bigint, sum(input_tokens)::bigint, sum(cached_tokens)::bigint,"
        " sum(output_tokens)::bigint, sum(cost), sum(unpriced)::bigint from callboard.usage"
        " where day >= %s and (%s::text is null or key = %s) group by {} order by {}"
    ).format(names, names, names)
    return db.execute(query, (since, key, key)).fetchall()


def forget(db: psycopg.Connection[Any]) -> None:
    """Remove processes that have written nothing for `KEPT_DAYS`."""
    db.execute("delete from callboard.spenders where seen < now() - make_interval(days => %s)", (KEPT_DAYS,))


def _columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return {name: [row[column] for row in rows] for column, name in enumerate(names)}
