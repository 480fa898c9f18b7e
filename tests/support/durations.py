"""Durations of tests: what the previous runs took, kept in pytest's cache, and an estimate from the tier without that.

Seconds of wall time for each test, setup and teardown included.
"""

from __future__ import annotations

import pytest

_KEY = "callboard/durations"
_ESTIMATES = {"browser": 3.0, "postgres": 3.0, "terminal": 1.5, "interop": 2.0, "process": 0.4}
_DEFAULT = 0.03


class Durations:
    """The durations that pytest's cache has; `of(item)` in seconds."""

    def __init__(self, config: pytest.Config) -> None:
        cache = getattr(config, "cache", None)  # None under `-p no:cacheprovider`
        self.known: dict[str, float] = dict(cache.get(_KEY, {})) if cache is not None else {}

    def of(self, item: pytest.Item) -> float:
        known = self.known.get(item.nodeid)
        if known is not None:
            return known
        return max((_ESTIMATES.get(mark.name, _DEFAULT) for mark in item.iter_markers()), default=_DEFAULT)


class Recorder:
    """Pytest plugin that adds the durations of this run to the cache; those of other tests stay."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        cache = getattr(self._config, "cache", None)
        if cache is not None and self._seconds:
            measured = {name: round(seconds, 3) for name, seconds in self._seconds.items()}
            cache.set(_KEY, {**Durations(self._config).known, **measured})
