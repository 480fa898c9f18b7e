"""The vault as a process has it: who is asked, in which order, how often, and what a missing name costs."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import pytest
import trio
from support import fast_age as small_age
from support.messages import has_message, says

from callboard.actors.io import secret_redaction
from callboard.actors.io.vault.vault import NotFetched, Vault
from callboard.protocol.errors import CallboardError, ConfigError
from callboard.protocol.settings import Settings, VaultSettings
from callboard.supervisors import Root

SECRET = "s3cret-of-the-vault"


def vault_in(directory: Path, environ: dict[str, str] | None = None, **more: Any) -> Vault:
    settings = Settings(vault=more.pop("vault", VaultSettings()), other=more.pop("other", {}))
    return Vault(settings, directory, {"HOME": str(directory), **(environ or {})}, **more)


def keep(vault: Vault, **values: str) -> None:
    assert vault.file is not None
    vault.file.change(lambda secrets: secrets.update(values))


def command(directory: Path, text: str) -> VaultSettings:
    """A vault that is a script, which writes a line to `runs` each time."""
    script = directory / "give.sh"
    script.write_text(f'#!/bin/sh\necho "$1" >> {directory}/runs\n{text}\n')
    script.chmod(0o755)
    return VaultSettings(command=f"{script} {{name}}", timeout=60)


def runs(directory: Path) -> list[str]:
    return (directory / "runs").read_text().split()


def test_the_vault_comes_first_and_the_environment_has_the_rest(tmp_path: Path) -> None:
    vault = vault_in(tmp_path, {"BOTH": "of the environment", "ONLY": "of the environment"})
    assert vault.get("BOTH") == "of the environment"
    assert not vault.is_there
    keep(vault, BOTH=SECRET)
    assert vault.get("BOTH") == SECRET
    assert vault.get("ONLY") == "of the environment"
    assert vault.get("NEITHER") is None
    assert secret_redaction.hidden(f"{SECRET}, of the environment, other") == "[redacted], [redacted], other"


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    vault, other = vault_in(tmp_path), vault_in(tmp_path)
    keep(other, NAME="first value")
    assert vault.get("NAME") == "first value"
    keep(other, NAME="second value")
    assert vault.get("NAME") == "second value"


def test_a_home_that_is_not_known_is_no_crash(tmp_path: Path) -> None:
    vault = Vault(Settings(), tmp_path, {"HOME": ""})
    assert vault.get("NAME") is None


def test_where_to_look_is_as_the_settings_say(tmp_path: Path) -> None:
    vault = vault_in(tmp_path, vault=VaultSettings(file="sub/own.age", identity="~/keys/own.txt"))
    keep(vault, NAME="value")
    assert (tmp_path / "sub" / "own.age").is_file()
    home = Path("~/keys/own.txt").expanduser()
    assert vault_in(tmp_path, vault=VaultSettings(file="sub/own.age", identity=str(home))).get("NAME") == "value"


def test_lokis_key_names_the_file_with_the_passphrase(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("correct horse\n")
    (tmp_path / "pw").chmod(0o600)
    small_age.keep(tmp_path / "vault.age", "correct horse", NAME="value")
    assert vault_in(tmp_path, other={"vault_password_file": str(tmp_path / "pw")}).get("NAME") == "value"
    assert vault_in(tmp_path, vault=VaultSettings(passphrase_file="pw")).get("NAME") == "value"


def test_what_is_missing_is_told_with_what_to_do(tmp_path: Path) -> None:
    vault = vault_in(tmp_path)
    assert has_message(vault.why_missing("X"), "io.vault.vault.Vault.why_missing.4", where="the environment")
    (tmp_path / "vault.yml").write_text("X: $VAULT;v1\n")
    assert has_message(vault.why_missing("X"), "io.vault.vault.Vault.why_missing.2", _lokis_file="…vault.yml")
    keep(vault, OTHER="value")
    assert has_message(vault.why_missing("X"), "io.vault.vault.Vault.why_missing.4")


async def test_fifty_who_ask_at_once_share_one_run_of_the_command(tmp_path: Path) -> None:
    settings = command(tmp_path, f"sleep 0.3\necho {SECRET}-$1")
    found: list[str | None] = []
    async with Root() as root:
        vault = vault_in(tmp_path, {"PATH": "/usr/bin:/bin"}, vault=settings, kernel=root)
        with pytest.raises(NotFetched):
            vault.get("A")

        async def ask(name: str) -> None:
            found.append(await vault.ready(lambda: vault.get(name)))

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(ask, "AB"[number % 2])
        assert vault.get("A") == f"{SECRET}-A"  # and later ones none
    assert sorted(found) == [f"{SECRET}-A"] * 25 + [f"{SECRET}-B"] * 25  # type: ignore[type-var] # none is None
    assert sorted(runs(tmp_path)) == ["A", "B"]


async def test_threads_wait_for_the_same_run(tmp_path: Path) -> None:
    settings = command(tmp_path, f"sleep 0.2\necho {SECRET}")
    async with Root() as root:
        vault = vault_in(tmp_path, {"PATH": "/usr/bin:/bin"}, vault=settings, kernel=root)
        found: list[str | None] = []
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(trio.to_thread.run_sync, lambda: found.append(vault.get("A")))
    assert found == [SECRET] * 5
    assert runs(tmp_path) == ["A"]


def test_without_a_root_the_command_is_run_all_the_same(tmp_path: Path) -> None:
    settings = command(tmp_path, f"echo {SECRET}")
    vault = vault_in(tmp_path, {"PATH": "/usr/bin:/bin"}, vault=settings)
    assert vault.get("A") == SECRET
    assert vault.get("A") == SECRET
    assert runs(tmp_path) == ["A"]


async def test_one_who_is_cancelled_costs_the_others_nothing(tmp_path: Path) -> None:
    settings = command(tmp_path, f"sleep 0.4\necho {SECRET}")
    async with Root() as root:
        vault = vault_in(tmp_path, {"PATH": "/usr/bin:/bin"}, vault=settings, kernel=root)
        with trio.move_on_after(0.1):
            await vault.fetch(["A"])
        await vault.fetch(["A"])
        assert vault.get("A") == SECRET
    assert runs(tmp_path) == ["A"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo no such item >&2; exit 3", r"failed \(status 3\): no such item"),
        ("true", "printed nothing"),
        ("kill -9 $$", says("io.vault.vault.VaultCommand._printed.5", signal=9)),
        ("head -c 100000 /dev/zero | tr '\\0' x", says("io.vault.vault.VaultCommand._printed.4", MOST_OUTPUT=65536)),
        ("printf 'a\\0b'", "a NUL character"),
    ],
)
async def test_a_command_that_fails_is_an_error_and_no_word_of_the_environment(
    tmp_path: Path, text: str, words: str
) -> None:
    async with Root() as root:
        environ = {"PATH": "/usr/bin:/bin", "A": "of the environment"}
        vault = vault_in(tmp_path, environ, vault=command(tmp_path, text), kernel=root)
        for _ in range(2):  # it is run again: what failed may have passed
            with pytest.raises(ConfigError, match=words) as error:
                await vault.ready(lambda: vault.get("A"))
            assert "{{A}}" in str(error.value)
    assert runs(tmp_path) == ["A", "A"]


async def test_a_command_has_its_time_and_leaves_nothing(tmp_path: Path) -> None:
    settings = VaultSettings(command="sleep 60{name}", timeout=0.3)
    async with Root() as root:
        vault = vault_in(tmp_path, {"PATH": "/usr/bin:/bin"}, vault=settings, kernel=root)
        with (
            trio.fail_after(60),
            pytest.raises(ConfigError, match=says("io.vault.vault.VaultCommand._printed.2", _timeout="0.3")),
        ):
            await vault.fetch(["s"])
        missing = vault_in(tmp_path, vault=VaultSettings(command="/no/such/program {name}"), kernel=root)
        with pytest.raises(ConfigError, match=says("io.vault.vault.VaultCommand._printed.3")):
            await missing.fetch(["A"])


async def test_no_shell_sees_the_name(tmp_path: Path) -> None:
    settings = VaultSettings(command="printf '%s' '$(id) {name};id'")
    async with Root() as root:
        vault = vault_in(tmp_path, {"PATH": "/usr/bin:/bin"}, vault=settings, kernel=root)
        await vault.fetch(["A"])
        assert vault.get("A") == "$(id) A;id"


async def test_the_passphrase_is_asked_for_once_however_many_want_it(tmp_path: Path) -> None:
    small_age.keep(tmp_path / "vault.age", "correct horse", A=SECRET)
    asked: list[str] = []
    answers = ["wrong horse", "correct horse"]

    async def ask(text: str) -> str:
        asked.append(text)
        return answers.pop(0)

    vault = vault_in(tmp_path, vault=VaultSettings(passphrase=True), ask=ask)
    with pytest.raises(NotFetched):
        vault.get("A")
    assert vault.may_have("A")
    with pytest.raises(ConfigError, match=says("io.vault.age.opened_by_passphrase.2")):
        await vault.fetch(["A"])
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(vault.fetch, ["A"])
    assert vault.get("A") == SECRET
    assert asked == [f"Passphrase of the vault {tmp_path / 'vault.age'}"] * 2


async def test_without_a_terminal_a_passphrase_is_an_error_with_what_to_do(tmp_path: Path) -> None:
    small_age.keep(tmp_path / "vault.age", "correct horse", A=SECRET)
    with pytest.raises(ConfigError, match=says("io.vault.keys.Passphrase._passphrase.3")):
        await vault_in(tmp_path, vault=VaultSettings(passphrase=True)).fetch(["A"])


class FakeKeyring(types.ModuleType):
    """The library's two functions, in memory."""

    def __init__(self) -> None:
        super().__init__("keyring")
        self.kept: dict[tuple[str, str], str] = {}
        self.broken = False

    def get_password(self, service: str, user: str) -> str | None:
        if self.broken:
            raise RuntimeError("the keyring is locked")
        return self.kept.get((service, user))

    def set_password(self, service: str, user: str, text: str) -> None:
        self.kept[service, user] = text


def test_a_keyring_has_the_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = FakeKeyring()
    monkeypatch.setitem(sys.modules, "keyring", ring)
    settings = VaultSettings(keyring=True)
    keep(vault_in(tmp_path, vault=settings), A=SECRET)
    vault = vault_in(tmp_path, vault=settings)
    assert vault.get("A") == SECRET
    assert vault.file is not None
    vault.file.rotate()
    assert vault_in(tmp_path, vault=settings).get("A") == SECRET
    assert [text.count("AGE-SECRET-KEY-1") for text in ring.kept.values()] == [2]
    ring.broken = True
    with pytest.raises(ConfigError, match=says("io.vault.keys.Keyring._call.2", __name__="RuntimeError")):
        vault_in(tmp_path, vault=settings).get("A")
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ConfigError, match=says("io.vault.keys.Keyring._call")):
        vault_in(tmp_path, vault=settings).get("A")


def test_vaults_that_share_a_keyring_make_one_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = FakeKeyring()
    put = ring.set_password

    def slowly(service: str, user: str, text: str) -> None:
        time.sleep(0.2)
        put(service, user, text)

    monkeypatch.setattr(ring, "set_password", slowly)
    monkeypatch.setitem(sys.modules, "keyring", ring)
    vaults = [vault_in(tmp_path, vault=VaultSettings(keyring=True, file=f"{name}.age")) for name in "ab"]
    threads = [threading.Thread(target=keep, args=(vault,), kwargs={"A": SECRET}) for vault in vaults]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [vault.get("A") for vault in vaults] == [SECRET] * 2
    assert [text.count("AGE-SECRET-KEY-1") for text in ring.kept.values()] == [1]


def test_a_keyring_that_keeps_nothing_is_told_before_anything_is_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = FakeKeyring()
    monkeypatch.setattr(ring, "set_password", lambda *_: None)
    monkeypatch.setitem(sys.modules, "keyring", ring)
    vault = vault_in(tmp_path, vault=VaultSettings(keyring=True))
    with pytest.raises(ConfigError, match=says("io.vault.keys.Keyring._make")):
        keep(vault, A=SECRET)
    assert not vault.is_there


def test_threads_that_read_at_once_read_the_same(tmp_path: Path) -> None:
    keep(vault_in(tmp_path), A=SECRET)
    vault, found = vault_in(tmp_path), []
    threads = [threading.Thread(target=lambda: found.append(vault.get("A"))) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [SECRET] * 50


def test_what_another_process_was_handed_is_hidden_be_it_of_the_file_or_of_the_environment(tmp_path: Path) -> None:
    environ = {"OUTSIDE": "s3cret-from-outside", "KEPT": "s3cret-of-before", "PLAIN": "no secret of anybody"}
    vault = vault_in(tmp_path, environ)
    vault.hide_all()
    assert secret_redaction.hidden("s3cret-from-outside") == "s3cret-from-outside"
    vault.hide_all(["OUTSIDE", "KEPT", "GONE"])
    assert secret_redaction.hidden("s3cret-from-outside s3cret-of-before") == "[redacted] [redacted]"
    assert secret_redaction.hidden("no secret of anybody") == "no secret of anybody"
    assert secret_redaction.names_in(b"s3cret-from-outside") == ("OUTSIDE",)


def test_nothing_of_it_shows_a_value(tmp_path: Path) -> None:
    vault = vault_in(tmp_path, vault=command(tmp_path, f"echo {SECRET}"))
    with contextlib.suppress(CallboardError):
        vault.get("A")
    for thing in (vault, vault.command, vault_in(tmp_path).file):
        assert SECRET not in repr(thing)
