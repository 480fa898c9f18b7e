"""`callboard vault` as users run it: with a pipe, at a terminal, without either."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
from support.messages import fragment, has_message
from support.screen import Screen
from support.starter import CALLBOARD
from support.waiting import PATIENCE

from callboard.actors.io.vault import age

from .conftest import Ended

COMMAND = [*CALLBOARD, "vault"]
VALUE = "s3cret-value-1"

Vault = Callable[..., Ended]


@pytest.fixture
def vault(callboard: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Runs `callboard vault`, with a text on standard input if one is given."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path / "config"))

    def run(*arguments: str, text: str | None = None) -> Ended:
        if text is None:
            return callboard("vault", *arguments)
        done = subprocess.run([*COMMAND, *arguments], input=text, capture_output=True, text=True, check=False)
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


def test_a_secret_goes_in_by_a_pipe_and_comes_out_alone(vault: Vault, tmp_path: Path) -> None:
    added = vault("add", "MY-KEY", text=VALUE + "\n")
    assert added == (0, "", f"callboard: MY-KEY is stored in {tmp_path / 'config' / 'vault.age'}\n")
    assert vault("get", "MY-KEY") == (0, VALUE + "\n", "")
    assert vault("list") == (0, "MY-KEY\n", "")
    shown = json.loads(vault("list", "-o", "json").out)
    assert shown == {"schema_version": 1, "file": str(tmp_path / "config" / "vault.age"), "names": ["MY-KEY"]}
    assert vault("update", "MY-KEY", text="another-value").code == 0
    assert vault("get", "MY-KEY").out == "another-value\n"
    assert vault("delete", "MY-KEY", "--yes") == (0, "", "callboard: MY-KEY is deleted\n")
    assert vault("list").out == ""


def test_a_value_of_several_lines_stays_as_it_is(vault: Vault) -> None:
    pem = "-----BEGIN KEY-----\nabc\n\n def\n-----END KEY-----"
    vault("add", "PEM", text=pem + "\n")
    assert vault("get", "PEM").out == pem + "\n"


@pytest.mark.parametrize(
    ("arguments", "text", "code", "words"),
    [
        (("add", "HERE"), "x", 2, "the secret HERE exists already; to replace it: callboard vault update HERE"),
        (("update", "HER"), "x", 2, "there is no secret 'HER' in .*; did you mean 'HERE'?"),
        (("get", "NO"), None, 2, "there is no secret 'NO'"),
        (("delete", "NO", "--yes"), None, 2, "there is no secret 'NO'"),
        (("delete", "HERE"), None, 5, "repeat the command with --yes"),
        (("add", "1X"), "x", 2, "can't be the name of a secret"),
        (("add", "a b"), "x", 2, "can't be the name of a secret"),
        (("add", "NEW"), "", 2, "nothing was stored"),
        (("add", "NEW"), " \n", 2, "is empty; nothing was stored"),
        (("add", "NEW"), "a\0b", 2, "it is binary data, not text"),
        (("add", "NEW"), "x" * 70_000, 2, "longer than 65536"),
        (("import",), None, 2, "name a source: --from-env"),
        (("import", "--from-env"), None, 2, "needs the NAMEs"),
        (("import", "--from-env", "NO_SUCH_VARIABLE"), None, 2, "not set in the environment: NO_SUCH_VARIABLE"),
        (("import", "--from-json", "-"), "{", 2, "is not JSON"),
        (("import", "--from-json", "-"), '{"A": 5}', 2, "the value of 'A' is not a text"),
        (("import", "--from-json", "-"), '{"A": "x", "B C": "y"}', 2, "can't be the name of a secret"),
        (
            ("import", "--from-json", "-"),
            '{"HERE": "other value"}',
            2,
            "other values of HERE: --replace overwrites them",
        ),
        (("import", "--from-json", "/no/such"), None, 2, "No such file"),
    ],
)
@pytest.mark.sample(7)
def test_what_can_not_be_done_is_told_and_changes_nothing(
    vault: Vault, tmp_path: Path, arguments: tuple[str, ...], text: str | None, code: int, words: str
) -> None:
    vault("add", "HERE", text=VALUE)
    before = (tmp_path / "config" / "vault.age").read_bytes()
    ended = vault(*arguments, text=text if text is not None else "" if arguments[0] == "delete" else None)
    assert ended.code == code, ended
    assert ended.out == ""
    assert re.search(words, ended.err), ended.err
    assert (tmp_path / "config" / "vault.age").read_bytes() == before


def test_many_are_imported_at_once(vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "first value")
    monkeypatch.setenv("TWO", "second value")
    assert vault("import", "--from-env", "ONE", "TWO").err.startswith("callboard: 2 secrets added, 0 already present")
    (tmp_path / "more.json").write_text('{"TWO": "changed", "THREE": "third"}')
    assert vault("import", "--from-json", str(tmp_path / "more.json")).code == 2
    ended = vault("import", "--from-json", str(tmp_path / "more.json"), "--replace")
    assert ended.err.startswith("callboard: 1 secret added, 1 already present")
    assert [vault("get", name).out for name in ("ONE", "TWO", "THREE")] == ["first value\n", "changed\n", "third\n"]


def test_lokis_own_vault_is_told_with_what_to_do(vault: Vault, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    lokis = tmp_path / "config" / "vault.yml"
    lokis.write_text("OPENAI_KEY: $VAULT;v1;argon2id;AAAA\n")
    assert f"{lokis} is Loki's vault, which only Loki can read: callboard vault import --help" in vault("list").err
    ended = vault("import", "--from-json", str(lokis))
    assert ended.code == 2
    assert has_message(ended.err, "cli.actions.vault._of_json.3")


def test_a_short_value_is_kept_with_a_warning(vault: Vault) -> None:
    assert has_message(vault("add", "PIN", text="1234").err, "cli.actions.vault.put_secret", SHORTEST=8)


def test_a_vault_that_is_a_command_shows_what_it_gives(vault: Vault, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    config = tmp_path / "config" / "config.yaml"
    config.write_text("vault: {command: \"printf '%s' value-of-{name}\"}\n")
    assert vault("get", "X") == (0, "value-of-X\n", "")
    for arguments in (("list",), ("add", "X"), ("delete", "X"), ("rotate",)):
        ended = vault(*arguments)
        assert ended.code == 2
        assert has_message(ended.err, "cli.actions.vault._file")
    config.write_text('vault: {command: "false {name}"}\n')
    ended = vault("get", "X")
    assert (ended.code, ended.out) == (3, "")
    assert "failed (status 1)" in ended.err


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ('{command: "op read x"}', r"does not contain \{name\}, the place for the name"),
        ('{command: "op {name", file: x}', "`file` can't be combined with `command`"),
        ('{command: "op \'{name}"}', "can't be read: No closing quotation"),
        ('{command: "{name}"}', "names no program"),
        ("{keyring: true, passphrase: true}", "`keyring` and `passphrase` exclude each other"),
        ("{identity: a, keyring: true}", "exclude each other"),
        ("{passphrase: true, recipients: [age1x]}", fragment("protocol.settings.vault.vault_problems.6")),
        ("{passphrase_file: '{{X}}'}", "`passphrase_file` can't refer to a secret"),
        ("{timeout: 0}", "timeout"),
        ("{passphrases: true}", "did you mean 'passphrase'"),
    ],
)
def test_a_block_that_makes_no_sense_is_told_with_its_line(
    vault: Vault, tmp_path: Path, block: str, words: str
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text(f"# mine\nvault: {block}\n")
    ended = vault("list")
    assert re.search(words, ended.err), ended.err
    assert "config.yaml:2:" in ended.err or "passphrases" in block


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vault: {timeout: 5}", "`timeout` has no effect: it limits `command`, which is not set"),
        (
            "vault_password_file: pw\nvault: {keyring: true}",
            "`vault_password_file` has no effect: `keyring` of `vault`",
        ),
        ("vault_password_file: pw\nvault: {command: 'true {name}'}", "`vault_password_file` has no effect: `command`"),
        ("vault_password_file: pw\nvault: {recipients: [age1x]}", fragment("protocol.settings.vault.vault_problems.6")),
    ],
)
def test_a_key_that_has_no_effect_is_told(vault: Vault, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text(f"{text}\n")
    ended = vault("get", "X")
    assert words in ended.err, ended.err


def test_lokis_key_can_not_be_a_secret(vault: Vault, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text("vault_password_file: '{{X}}'\n")
    ended = vault("list")
    assert ended.code == 3
    assert has_message(ended.err, "protocol.settings.vault.vault_problems.11", path="vault_password_file")


def test_who_shares_a_vault_is_told_the_fresh_key(vault: Vault, tmp_path: Path) -> None:
    vault("add", "ALPHA", text=VALUE)
    assert "public key" not in vault("rotate").err
    other = age.public_of(age.new_identity())
    (tmp_path / "config" / "config.yaml").write_text(f"vault: {{recipients: [{other}]}}\n")
    assert re.search(
        r"your public key is now age1\w+: replace the former one in `recipients` with it", vault("rotate").err
    )
    (tmp_path / "config" / "config.yaml").write_text("")
    refused = vault("rotate")
    assert (refused.code, other in refused.err) == (3, True)
    assert vault("rotate", "--leave-out").code == 0
    assert vault("get", "ALPHA").out == f"{VALUE}\n"


def test_names_are_completed(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    vault("add", "ALPHA", text=VALUE)
    vault("add", "BETA", text=VALUE)
    environ = {**os.environ, "_CALLBOARD_COMPLETE": "bash_complete", "COMP_WORDS": "callboard vault get A"}
    done = subprocess.run(
        CALLBOARD,
        env={**environ, "COMP_CWORD": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "plain,ALPHA\n"
    assert done.stderr == ""


def test_the_value_is_no_argument(vault: Vault) -> None:
    ended = vault("add", "NAME", "s3cret-argument")
    assert ended.code == 2


def test_without_a_terminal_and_without_a_pipe_nobody_is_asked(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    ended = vault("add", "NAME", "--no-input")
    assert ended.code == 5
    assert has_message(ended.err, "cli.actions.vault._value", name="NAME")


async def at_terminal(
    screen: Screen, environ: dict[str, str], *arguments: str, keys: tuple[tuple[str, str], ...]
) -> int:
    """The exit code of a command in a session of its own, whose terminal the screen is."""
    process = await trio.lowlevel.open_process(
        [*COMMAND, *arguments],
        stdin=screen.slave,
        stdout=screen.slave,
        stderr=screen.slave,
        env={**os.environ, **environ, "TERM": "xterm", "NO_COLOR": "1"},
        preexec_fn=partial(os.login_tty, screen.slave),
    )
    for pattern, pressed in keys:
        await screen.shows(pattern)
        screen.press(pressed)
    with trio.fail_after(PATIENCE):
        while process.poll() is None:
            with trio.move_on_after(0.1):
                await screen.shows(r"\Z(?!)")
        with trio.move_on_after(0.2):
            await screen.shows(r"\Z(?!)")
    return process.returncode or 0


async def test_at_a_terminal_the_value_is_typed_and_not_shown(tmp_path: Path, screen: Screen) -> None:
    environ = {"CALLBOARD_CONFIG_DIR": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}
    typed = ((r"Value of KEY \(not echoed\): ", f"{VALUE}\r"),)
    assert await at_terminal(screen, environ, "add", "KEY", keys=typed) == 0
    assert VALUE not in screen.text
    assert "KEY is stored in" in screen.text
    assert await at_terminal(screen, environ, "delete", "KEY", keys=((r"permanently\? \[y/N\]: ", "n\r"),)) == 1
    assert await at_terminal(screen, environ, "get", "KEY", keys=()) == 0
    assert VALUE in screen.text


async def test_a_passphrase_is_chosen_twice_and_asked_for_once(tmp_path: Path, screen: Screen) -> None:
    environ = {"CALLBOARD_CONFIG_DIR": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text("vault: {passphrase: true}\n")
    chosen = (
        (r"New passphrase.*: ", "correct horse\r"),
        ("Repeat the passphrase: ", "correct horse\r"),
        ("Value of K", f"{VALUE}\r"),
    )
    assert await at_terminal(screen, environ, "add", "KEY", keys=chosen) == 0
    assert "correct horse" not in screen.text
    asked = ((r"Passphrase of the vault .*: ", "correct horse\r"),)
    assert await at_terminal(screen, environ, "get", "KEY", keys=asked) == 0
    assert VALUE in screen.text
    assert not (tmp_path / "state").exists()
