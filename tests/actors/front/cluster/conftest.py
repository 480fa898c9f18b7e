from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_house import House
from cutting_proxy import Link
from postgres_house import Postgres, running


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
def own(tmp_path: Path) -> Iterator[tuple[Postgres, House, Link]]:
    """A database of its own with a port, and a link to it that can be cut."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with running(port) as server:
        link = Link(port)
        house = House(tmp_path, server.database())
        try:
            yield server, house, link
        finally:
            house.end_all()
            link.end()
