from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster import House, Standing
from support.cutting_proxy import Link
from support.postgres import Postgres, running


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running() as server:
        yield server


@pytest.fixture
def house(tmp_path: Path, postgres: Postgres) -> Iterator[House]:
    made = House(tmp_path, postgres.database())
    try:
        yield made
    finally:
        made.end_all()


@pytest.fixture
def own(tmp_path: Path, free_port: int) -> Iterator[tuple[Postgres, House, Link]]:
    """A database of its own with a port, and a link to it that can be cut."""
    with running(free_port) as server:
        link = Link(free_port)
        house = House(tmp_path, server.database())
        try:
            yield server, house, link
        finally:
            house.end_all()
            link.end()


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[Standing]:
    """Two workers, `one` and `two`, which have these labels, and a gateway: for tests that end none of them."""
    house = House(tmp_path_factory.mktemp("standing"), postgres.database())
    try:
        house.worker("one", "--room", "3", "--has", "one")
        house.worker("two", "--room", "3", "--has", "two")
        with house.client(house.gateway()) as http:
            yield house, http
    finally:
        house.end_all()
