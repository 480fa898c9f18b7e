"""Tables of a cluster, and their migration between versions.

    runs       one row per run: its request, owner (`owner`, `life`), number of rows, and status for lists;
               `parent` is the run that it is a remote child of
    rows       blocks of the runs' rows, as in a journal file
    blobs      data over 16 KiB, and bundles of agents; each content is stored once
    events     events of the runs, in blocks of lines, without text deltas that a later event contains whole
    questions  questions to users, and the first answer of each
    workers    processes that execute runs; a worker is dead after its `lease`, by the clock of the database
    counts     counters for metrics, since the tables were created
    ledger     spending against daily limits; `held`: reservations of requests in flight (`spending`)
    usage      the usage book: cost of models by day, key, agent and model
    spenders   processes that write the ledger and the book, with the number of their last batch
    about      version of the schema, and the oldest version of callboard's tables that can still use it

They are in a schema of their own, so that the database may be shared. A step of `STEPS` only adds: it removes nothing
that the previous version reads. So processes of two successive versions work at the same time, and a downgrade by one
version needs no change of the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.kernel.errors import JournalError

if TYPE_CHECKING:
    import psycopg

SCHEMA = "callboard"

CHANNEL = "callboard"
"""Channel of `notify`. A payload is a letter, a blank, and the ids that it is about:

    q           a run waits in the queue
    r RUN ...   these runs have new events, or another status
    a RUN ...   a question of these runs was answered
    c RUN ...   these runs are to be cancelled
    k           the open questions have changed
    l NAME S    the provider account NAME is throttled for S seconds
"""

_FIRST = """
create schema if not exists callboard;
create table callboard.about(key text primary key, value text not null);
create table callboard.runs(
    id bigint generated always as identity primary key, run text not null unique,
    state smallint not null default 0, parked boolean not null default false, cancelled text not null default '',
    owner text, life int not null default 0, lost int not null default 0, at_lost int not null default 0,
    needs text[] not null default '{}', priority int not null default 0, prefer text, queued timestamptz not null
    default now(), taken timestamptz, subject text not null default '', request bytea, bundle bytea,
    rows int not null default 0, crc bigint not null, began double precision not null, ended double precision,
    about bytea not null default '', info bytea not null, changed bigint not null default 0
);
create index runs_queue on callboard.runs(priority, id) where state = 0 and owner is null and not parked;
create index runs_owner on callboard.runs(owner) where owner is not null;
create index runs_bundle on callboard.runs(bundle) where bundle is not null;
create index runs_changed on callboard.runs(changed);
create sequence callboard.changes;
create table callboard.blobs(id bigint generated always as identity primary key, hash bytea not null unique,
    data bytea not null, used timestamptz not null default now());
create table callboard.rows(run bigint not null references callboard.runs on delete cascade, seq int not null,
    count int not null, actor text not null, data bytea, blob bigint references callboard.blobs, crc bigint not null,
    primary key (run, seq));
create index rows_blob on callboard.rows(blob) where blob is not null;
create table callboard.events(run bigint not null references callboard.runs on delete cascade, first bigint not null,
    last bigint not null, data bytea not null, primary key (run, first));
create table callboard.questions(id text primary key, run bigint not null references callboard.runs on delete cascade,
    data bytea not null, asked timestamptz not null default now(), answer bytea, answered timestamptz,
    closed text, changed bigint not null default 0);
create index questions_run on callboard.questions(run);
create index questions_changed on callboard.questions(changed);
create table callboard.workers(sign text primary key, name text not null, url text not null default '',
    token text not null default '', has text[] not null default '{}', room int not null, version text not null,
    began timestamptz not null default now(), lease timestamptz not null, draining boolean not null default false);
create table callboard.counts(name text primary key, value bigint not null);
"""

_PARTS = """
alter table callboard.runs add column parent text;
create index runs_parent on callboard.runs(parent) where parent is not null and state = 0;
"""

_SPENDING = """
create table callboard.ledger(day text not null, key text not null, tokens bigint not null,
    cost double precision not null, primary key (day, key));
create table callboard.held(process text not null, id bigint not null, key text not null, day text not null,
    tokens bigint not null, cost double precision not null, primary key (process, id, key));
create table callboard.usage(day text not null, key text not null, agent text not null, model text not null,
    requests bigint not null, input_tokens bigint not null, cached_tokens bigint not null,
    output_tokens bigint not null, cost double precision not null, unpriced bigint not null,
    primary key (day, key, agent, model));
create table callboard.spenders(process text primary key, batch bigint not null,
    seen timestamptz not null default now());
"""

_SECOND = _PARTS + _SPENDING

STEPS = (_FIRST, _SECOND)
"""Statements that create each version's tables from the previous version's."""

VERSION = len(STEPS)

OLDEST = 1
"""Oldest version of the tables whose callboard can use the tables of this version."""

_LOCK = 0x63_61_6C_6C
"""Advisory lock, so that one process at a time changes the tables."""


class WrongTables(JournalError):
    """The tables have a version that this callboard can't use."""

    code = "cluster_version"
    exit_code = 3


def migrate(db: psycopg.Connection[Any]) -> int:
    """Create the tables, or update them to this version; return the number of steps.

    Raises:
        WrongTables: they have a version that this callboard can't use.
    """
    with db.transaction():
        db.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
        before = check(db)
        for step in STEPS[before:]:
            db.execute(step)
        if before < VERSION:
            say = "insert into callboard.about values (%s, %s) on conflict (key) do update set value = excluded.value"
            db.execute(say, ("schema", str(VERSION)))
            db.execute(say, ("oldest", str(OLDEST)))
    return max(0, VERSION - before)


def check(db: psycopg.Connection[Any]) -> int:
    """Return the version of the existing tables, 0 if there are none.

    Raises:
        WrongTables: they have a version that this callboard can't use.
    """
    version, oldest = _version(db)
    if oldest > VERSION:
        raise WrongTables(
            f"the tables of the cluster are of version {version}, which needs a newer callboard:"
            f" this one knows {VERSION}"
        )
    return version


def _version(db: psycopg.Connection[Any]) -> tuple[int, int]:
    """Return the version of the existing tables, and the oldest version that can use them; 0 if there are none."""
    # A select from a missing table would be an error, which aborts the transaction of `migrate`.
    if db.execute("select to_regclass('callboard.about')").fetchone() == (None,):
        return 0, 0
    found = dict(db.execute("select key, value from callboard.about").fetchall())
    return int(found.get("schema", 0)), int(found.get("oldest", 0))
