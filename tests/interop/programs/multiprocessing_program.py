"""Runs in child processes, after runs in the parent, by each way to start them."""

from __future__ import annotations

import multiprocessing
import sys

from work import work

if __name__ == "__main__":
    assert work("parent") == "parent parent parent"
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, *pool.map(work, ["a", "b"], chunksize=1))
    sys.exit(0)
