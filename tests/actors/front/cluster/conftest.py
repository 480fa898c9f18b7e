from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster import ClusterProcesses, Standing
from support.cutting_proxy import Link
from support.postgres import Postgres, running


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running() as server:
        yield server


@pytest.fixture
def cluster_processes(tmp_path: Path, postgres: Postgres) -> Iterator[ClusterProcesses]:
    made = ClusterProcesses(tmp_path, postgres.database())
    try:
        yield made
    finally:
        made.end_all()


@pytest.fixture
def own(tmp_path: Path, free_port: int) -> Iterator[tuple[Postgres, ClusterProcesses, Link]]:
    """A database of its own with a port, and a link to it that can be cut."""
    with running(free_port) as server:
        link = Link(free_port)
        cluster_processes = ClusterProcesses(tmp_path, server.database())
        try:
            yield server, cluster_processes, link
        finally:
            cluster_processes.end_all()
            link.end()


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[Standing]:
    """Two workers, `one` and `two`, which have these labels, and a gateway: for tests that end none of them."""
    cluster_processes = ClusterProcesses(tmp_path_factory.mktemp("standing"), postgres.database())
    try:
        cluster_processes.worker("one", "--room", "3", "--has", "one")
        cluster_processes.worker("two", "--room", "3", "--has", "two")
        with cluster_processes.client(cluster_processes.gateway()) as http:
            yield cluster_processes, http
    finally:
        cluster_processes.end_all()
