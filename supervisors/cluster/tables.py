"""The tables of a cluster, and how they become those of another version.

    runs       a run each: what it is of, whose it is (`owner`, `life`), how far it has come, how it stands for lists;
               `parent` is the run that it is a part of
    rows       blocks of its rows, as in a journal file
    blobs      data over 16 KiB, and bundles of agents: once however many have it
    events     what has happened, in blocks of lines, without the pieces of texts that are told whole later
    questions  what people are asked, and the answer that came first
    workers    the processes that play runs; `lease` is when one is taken for dead, by the clock of the database
    counts     how often something has happened since the tables were made, for metrics
    ledger     what was spent of daily limits; `held` what requests under way may come to (`spending`)
    usage      the book: what models have cost, by day, key, agent and model
    spenders   the processes that write these, and the number of the last batch of each
    about      the schema's version, and the oldest version of callboard's tables that may still use it

They are in a schema of their own, so that they may share a database with others. A step of `STEPS` adds, and takes
nothing away that the version before it reads: so processes of two versions that follow each other work side by side,
and who goes back one version need not change the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.kernel.errors import JournalError

if TYPE_CHECKING:
    import psycopg

SCHEMA = "callboard"

CHANNEL = "callboard"
"""What is told by `notify`: a letter, a blank, the ids that it is about.

    q           something waits in the queue
    r RUN ...   there are events of these runs, or they stand otherwise
    a RUN ...   a question of these was answered
    c RUN ...   these shall be cancelled
    k           what is asked has changed
    l NAME S    the account of this name at a provider is to rest for S seconds
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
"""What makes each version's tables of those before it."""

VERSION = len(STEPS)

OLDEST = 1
"""The version of the tables that the oldest callboard knows which may use those of this one."""

_LOCK = 0x63_61_6C_6C
"""Of those who change the tables at the same time one does it."""


class WrongTables(JournalError):
    """The tables are of a version that this one can't use."""

    code = "cluster_version"
    exit_code = 3


def migrate(db: psycopg.Connection[Any]) -> int:
    """Make the tables, or make them those of this version; how many steps that took.

    Raises:
        WrongTables: they are of a version that does not let this one use them.
    """
    with db.transaction():
        db.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
        there = check(db)
        for step in STEPS[there:]:
            db.execute(step)
        if there < VERSION:
            say = "insert into callboard.about values (%s, %s) on conflict (key) do update set value = excluded.value"
            db.execute(say, ("schema", str(VERSION)))
            db.execute(say, ("oldest", str(OLDEST)))
    return max(0, VERSION - there)


def check(db: psycopg.Connection[Any]) -> int:
    """The version of the tables that are there, 0 where there are none.

    Raises:
        WrongTables: it does not let this one use them.
    """
    there, oldest = _version(db)
    if oldest > VERSION:
        raise WrongTables(
            f"the tables of the cluster are of version {there}, which needs a newer callboard: this one knows {VERSION}"
        )
    return there


def _version(db: psycopg.Connection[Any]) -> tuple[int, int]:
    """The version of the tables that are there, and the oldest that may use them; 0 where there are none."""
    if db.execute("select to_regclass('callboard.about')").fetchone() == (None,):
        return 0, 0
    found = dict(db.execute("select key, value from callboard.about").fetchall())
    return int(found.get("schema", 0)), int(found.get("oldest", 0))
