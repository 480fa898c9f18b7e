"""DBOS with its system database in PostgreSQL: workflows of steps that do nothing, one after another.

python cluster_dbos.py URL STEPS WORKFLOWS      prints the seconds that they took, after one to warm up
"""

from __future__ import annotations

import logging
import sys
import time

from dbos import DBOS, DBOSConfig

logging.disable(logging.WARNING)


def main(url: str, steps: int, workflows: int) -> None:
    config: DBOSConfig = {"name": "bench", "system_database_url": url, "run_admin_server": False}
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

    DBOS.launch()
    try:
        assert counted(steps) == steps
        begun = time.monotonic()
        for _ in range(workflows):
            assert counted(steps) == steps
        print(time.monotonic() - begun, flush=True)
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
