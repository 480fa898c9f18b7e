"""`callboard keys`."""

from __future__ import annotations

import io
import textwrap

import pytest
import yaml

from callboard.actors.front.access.credentials import KeyRing
from callboard.cli.main import run
from callboard.protocol.settings import read_settings


async def test_a_new_key_fits_the_lines_that_come_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["keys", "new", "alice", "-s", "run:agents", "--scope", "*"]) == 0
    shown = capsys.readouterr()
    key = shown.out.strip()
    text = "api:\n  auth:\n    keys:\n" + textwrap.indent(shown.err, "      ")
    settings, problems = read_settings(text, "config.yaml", {})
    assert problems == []
    caller = await KeyRing(settings.api.auth.static).check(key)
    assert caller is not None
    assert (caller.subject, caller.scopes) == ("alice", {"run:agents", "*"})
    assert key not in shown.err


def test_two_keys_are_never_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        run(["keys", "new", "alice"])
    first, second = capsys.readouterr().out.split()
    assert first != second


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["new", "alice", "-s", "read:run"], "did you mean 'read:runs'?"),
        (["new", "local"], "the user who runs the server"),
    ],
)
def test_what_would_not_work_is_refused(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["keys", *arguments]) == 2
    assert told in capsys.readouterr().err


async def test_a_key_of_one_s_own_can_be_hashed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a key that somebody made\n"))
    assert run(["keys", "hash"]) == 0
    text = yaml.safe_dump(
        {"api": {"auth": {"keys": [{"subject": "bob", "key_hash": capsys.readouterr().out.strip(), "scopes": []}]}}}
    )
    settings, problems = read_settings(text, "config.yaml", {})
    assert problems == []
    assert await KeyRing(settings.api.auth.static).check("a key that somebody made") is not None
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    assert run(["keys", "hash"]) == 2
