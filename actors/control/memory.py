"""How much memory this process takes, read where it costs a microsecond."""

from __future__ import annotations

import os

_PAGE = os.sysconf("SC_PAGE_SIZE")


def memory_of_process() -> int:
    """Bytes that are resident now; 0 where the system does not tell (there is no /proc)."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - a Path costs more than the reading
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0
