from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_house import House
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
