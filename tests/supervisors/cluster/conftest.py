from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from support.postgres import Postgres, running

from callboard.supervisors.cluster import tables

if TYPE_CHECKING:
    import psycopg


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running() as server:
        yield server


@pytest.fixture
def dsn(postgres: Postgres) -> str:
    """An empty database."""
    return postgres.database()


@pytest.fixture
def db(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database with the tables of a cluster."""
    from callboard.supervisors.cluster.database import connected

    with connected(dsn, "test", 2.0) as db:
        tables.migrate(db)
        yield db
