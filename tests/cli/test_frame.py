"""What a run of the command line sees to before it begins."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from callboard.cli.frame import FILES, raise_file_limit


@pytest.fixture
def hard() -> Iterator[int]:
    """The hard limit of open files; the soft one is as before afterwards."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_as_many_files_as_the_user_may_are_used_up_to_a_bound(hard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_000, hard))
    raise_file_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_000, hard))
    monkeypatch.setattr("callboard.cli.frame.FILES", 1_100)
    raise_file_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (1_100, hard)


def test_a_limit_that_is_higher_already_stays(hard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_000, hard))
    monkeypatch.setattr("callboard.cli.frame.FILES", 900)
    raise_file_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (1_000, hard)
