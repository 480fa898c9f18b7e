"""DBOS with its system database in SQLite on the disk: a workflow of steps that do nothing."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

from _serve import absent, clock, serve

try:
    from dbos import DBOS, DBOSConfig
except ImportError as error:
    absent(error)

logging.disable(logging.WARNING)


def chain_durable(n: int, times: int = 3) -> float:
    """µs per step, the mean of so many workflows, after one to warm up."""
    directory = Path(tempfile.mkdtemp(dir=Path(__file__).parent, prefix=".journal-"))
    config: DBOSConfig = {"name": "bench", "system_database_url": f"sqlite:///{directory}/dbos.db"}
    DBOS(config=config)

    @DBOS.step()
    def count_up(number: int) -> int:
        return number + 1

    @DBOS.workflow()
    def counted(steps: int) -> int:
        number = 0
        for _ in range(steps):
            number = count_up(number)
        return number

    try:
        DBOS.launch()
        assert counted(n) == n
        began = clock()
        for _ in range(times):
            assert counted(n) == n
        return (clock() - began) / times / n * 1e6
    finally:
        DBOS.destroy()
        shutil.rmtree(directory)


if __name__ == "__main__":
    serve({"chain_durable": chain_durable})
