"""The vault's file: what is in it is whole, private, and understood by age's own program, whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from support import fast_age as small_age
from support.messages import says
from support.starter import forked_code

from callboard.actors.io.vault import age
from callboard.actors.io.vault.file import VaultFile
from callboard.actors.io.vault.keys import IdentityFile, Passphrase
from callboard.protocol.errors import CallboardError, ConfigError

AGE = shutil.which("age")


def keep(file: VaultFile, **values: str) -> None:
    file.change(lambda secrets: secrets.update(values))


@pytest.fixture
def file(tmp_path: Path) -> VaultFile:
    return VaultFile(tmp_path / "config" / "vault.age", IdentityFile(tmp_path / "state" / "identity.txt"))


def identity_of(file: VaultFile) -> Path:
    assert isinstance(file.opener, IdentityFile)
    return file.opener.path


def test_what_is_kept_is_read_again_and_neither_name_nor_value_stands_on_the_disk(file: VaultFile) -> None:
    keep(file, TOKEN="s3cret-token", PEM="-----BEGIN\nline\n-----END", WORDS='"quoted" {{X}} ü')
    again = VaultFile(file.path, IdentityFile(identity_of(file)))
    assert again.read() == {"TOKEN": "s3cret-token", "PEM": "-----BEGIN\nline\n-----END", "WORDS": '"quoted" {{X}} ü'}
    data = file.path.read_bytes()
    assert b"TOKEN" not in data
    assert b"s3cret" not in data
    for path in (file.path, identity_of(file)):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_vault_that_is_not_there_is_empty_and_reading_makes_nothing(file: VaultFile, tmp_path: Path) -> None:
    assert file.read() == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(AGE is None, reason="age is not installed")
def test_age_itself_opens_ours_and_we_open_its(file: VaultFile) -> None:
    keep(file, ONE="first value")
    told = subprocess.run(["age", "-d", "-i", identity_of(file), file.path], check=True, capture_output=True).stdout
    assert json.loads(told) == {"version": 1, "secrets": {"ONE": "first value"}}
    public = age.public_of(identity_of(file).read_text().splitlines()[2])
    for armor in ([], ["--armor"]):
        by_hand = b'{"TWO": "by hand"}'
        done = subprocess.run(["age", "-r", public, *armor], input=by_hand, check=True, capture_output=True)
        file.path.write_bytes(done.stdout)
        assert file.read() == {"TWO": "by hand"}
    keep(file, THREE="more")
    assert file.read() == {"TWO": "by hand", "THREE": "more"}


@pytest.mark.skipif(AGE is None, reason="age is not installed")
def test_an_identity_of_age_keygen_opens_it(tmp_path: Path) -> None:
    path = tmp_path / "key.txt"
    subprocess.run(["age-keygen", "-o", path], check=True, capture_output=True)
    before = path.read_bytes()
    file = VaultFile(tmp_path / "vault.age", IdentityFile(path))
    keep(file, ONE="first value")
    assert file.read() == {"ONE": "first value"}
    assert path.read_bytes() == before


def test_rotating_needs_the_fresh_identity_and_keeps_the_former_for_backups(file: VaultFile) -> None:
    keep(file, ONE="first value")
    backup, former = file.path.read_bytes(), identity_of(file).read_text().splitlines()[2]
    assert file.rotate() == 1
    assert file.read() == {"ONE": "first value"}
    with pytest.raises(age.NotOpened, match=says("io.vault.age.opened.2")):
        age.opened(file.path.read_bytes(), [former])
    file.path.write_bytes(backup)
    assert file.read() == {"ONE": "first value"}


def test_whom_a_vault_is_encrypted_for_is_not_left_out(file: VaultFile, tmp_path: Path) -> None:
    keep(file, ONE="first value")
    mine, other = identity_of(file).read_text().splitlines()[2], age.new_identity()
    plain = age.opened(file.path.read_bytes(), [mine])
    file.path.write_bytes(age.sealed(plain, [age.public_of(mine), age.public_of(other)]))
    before = file.path.read_bytes()
    for change in (lambda: keep(file, TWO="x"), file.rotate):
        with pytest.raises(ConfigError, match=says("io.vault.file.VaultFile._check_recipients.2", count=2, after=1)):
            change()
    assert file.path.read_bytes() == before
    shared = VaultFile(file.path, IdentityFile(identity_of(file), [age.public_of(other)]))
    keep(shared, TWO="second")
    assert b"second" in age.opened(file.path.read_bytes(), [other])


def test_a_key_that_is_replaced_by_another_is_missed_though_their_number_is_the_same(file: VaultFile) -> None:
    bob, carol = age.new_identity(), age.new_identity()
    with_bob = VaultFile(file.path, IdentityFile(identity_of(file), [f"{age.public_of(bob)} "]))
    with_carol = VaultFile(file.path, IdentityFile(identity_of(file), [age.public_of(carol)]))
    keep(with_bob, ONE="first value")
    keep(with_bob, TWO="second")
    before = file.path.read_bytes()
    for change in (lambda: keep(with_carol, THREE="x"), with_carol.rotate):
        with pytest.raises(ConfigError, match=rf"{age.public_of(bob)}, and this change.*rotate --leave-out"):
            change()
    assert file.path.read_bytes() == before
    assert with_carol.rotate(leave_out=True) == 2
    assert b"second" in age.opened(file.path.read_bytes(), [carol])
    with pytest.raises(age.NotOpened):
        age.opened(file.path.read_bytes(), [bob])
    keep(with_carol, THREE="third")
    assert with_carol.read() == {"ONE": "first value", "TWO": "second", "THREE": "third"}


def test_a_team_shares_a_list_that_names_each_of_them(file: VaultFile, tmp_path: Path) -> None:
    """Whose own key is in there is encrypted for once, and not any more when it was renewed."""
    paths = [tmp_path / "anna.txt", tmp_path / "bob.txt"]
    for path in paths:
        path.write_text(age.new_identity())
        path.chmod(0o600)
    former = paths[0].read_text()
    team = [age.public_of(path.read_text()) for path in paths]
    annas, bobs = (VaultFile(file.path, IdentityFile(path, team)) for path in paths)
    keep(annas, ONE="first value")
    keep(bobs, TWO="second")
    assert len(age.stanzas(file.path.read_bytes())) == 2
    assert annas.rotate() == 2
    with pytest.raises(age.NotOpened, match=says("io.vault.age.opened.2")):
        age.opened(file.path.read_bytes(), [former])
    keep(annas, THREE="third")
    with pytest.raises(ConfigError, match=annas.opener.own()[0]):  # bob's list still names the former key
        keep(bobs, FOUR="fourth")
    VaultFile(file.path, IdentityFile(paths[1], [annas.opener.own()[0], team[1]])).change(lambda kept: kept.clear())
    assert annas.read() == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not encrypted with age"),
        (b"ONE: $VAULT;v1;argon2id", "not encrypted with age"),
        (b"age-encryption.org/v9\n-> X25519 a\nb\n--- c\n", says("io.vault.age._broken")),
        (b"-----BEGIN AGE ENCRYPTED FILE-----\n!!!!!!\n", says("io.vault.age.stanzas")),
    ],
)
def test_what_is_no_vault_is_an_error_that_names_it(file: VaultFile, content: bytes, words: str) -> None:
    keep(file, ONE="first value")
    file.path.write_bytes(content)
    with pytest.raises(ConfigError, match=words) as error:
        file.read()
    assert str(file.path) in str(error.value)
    with pytest.raises(ConfigError):
        keep(file, TWO="second")
    assert file.path.read_bytes() == content


def test_every_cut_and_every_flipped_byte_is_told_and_never_half_read(file: VaultFile) -> None:
    keep(file, ONE="first value")
    whole = file.path.read_bytes()
    for end in range(0, len(whole) - 40, 7):
        file.path.write_bytes(whole[:end])
        with pytest.raises(ConfigError, match=says("io.vault.file.VaultFile._content_of")):
            file.read()
    for place in range(0, len(whole), 11):
        file.path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with contextlib.suppress(ConfigError):
            assert file.read() == {"ONE": "first value"}  # in the armor's own line breaks, or its last line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"version": 2, "secrets": {"A": "b"}}', says("io.vault.file.VaultFile._content_of.2", version=2)),
        (b'{"A": 5}', "its content is not a JSON object of strings"),
        (b"s3cret: yaml", "its content is not a JSON object of strings"),
        (b'["s3cret"]', "its content is not a JSON object of strings"),
    ],
)
def test_another_content_is_told_without_being_quoted(file: VaultFile, text: bytes, words: str) -> None:
    keep(file, ONE="first value")
    file.path.write_bytes(file.opener.seal(text))
    with pytest.raises(ConfigError, match=words) as error:
        file.read()
    assert "s3cret" not in str(error.value)


def test_another_identity_a_lost_one_and_one_that_others_read_are_told_apart(file: VaultFile, tmp_path: Path) -> None:
    keep(file, ONE="first value")
    stranger = VaultFile(tmp_path / "x.age", IdentityFile(tmp_path / "other.txt"))
    keep(stranger, TWO="x")
    with pytest.raises(ConfigError, match=r"for another identity than those in .*other\.txt"):
        VaultFile(file.path, stranger.opener).read()
    identity_of(file).chmod(0o644)
    with pytest.raises(ConfigError, match=says("io.vault.keys._read_private.3")):
        file.read()
    identity_of(file).write_text("nothing\n")
    identity_of(file).chmod(0o600)
    with pytest.raises(ConfigError, match=says("io.vault.keys.IdentityFile._there")):
        file.read()
    identity_of(file).unlink()
    with pytest.raises(ConfigError, match=says("io.vault.keys.IdentityFile.open")):
        file.read()
    with pytest.raises(
        ConfigError, match=says("io.vault.keys.IdentityFile.open")
    ):  # a fresh one would hide what is lost
        keep(file, TWO="second")


# Opening what the product sealed takes a second of CPU each time. tests/cli/test_vault.py does so in every run.
@pytest.mark.parametrize("sealed_by", ["small_age", pytest.param("product", marks=pytest.mark.soak)])
def test_a_passphrase_opens_what_it_has_sealed_and_no_other_does(tmp_path: Path, sealed_by: str) -> None:
    (tmp_path / "pass").write_text("correct horse\nsecond line\n")
    (tmp_path / "pass").chmod(0o600)
    file = VaultFile(tmp_path / "vault.age", Passphrase(tmp_path / "pass"))
    if sealed_by == "product":
        keep(file, ONE="first value")
    else:
        small_age.keep(file.path, "correct horse", ONE="first value")
    assert file.read() == {"ONE": "first value"}
    typed = Passphrase()
    assert typed.is_wanted
    with pytest.raises(ConfigError, match=says("io.vault.keys.Passphrase._passphrase.3")):
        VaultFile(file.path, typed).read()
    typed.set_passphrase("correct horse")
    assert VaultFile(file.path, typed).read() == {"ONE": "first value"}
    small_age.keep(file.path, "correct horse", ONE="first value")
    assert VaultFile(file.path, typed).read() == {"ONE": "first value"}
    typed.set_passphrase("wrong horse")
    with pytest.raises(ConfigError, match=says("io.vault.age.opened_by_passphrase.2")):
        VaultFile(file.path, typed).read()
    with pytest.raises(ConfigError, match=says("io.vault.age.opened")):
        VaultFile(file.path, IdentityFile(_an_identity(tmp_path))).read()


def _an_identity(tmp_path: Path) -> Path:
    path = tmp_path / "one.txt"
    path.write_text(age.new_identity())
    path.chmod(0o600)
    return path


def test_without_pyrage_it_says_what_to_install(file: VaultFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyrage", None)
    with pytest.raises(ConfigError, match=says("io.vault.age._pyrage")):
        keep(file, ONE="x")
    assert not file.path.exists()


def _a_process(file: VaultFile, text: str) -> subprocess.Popen[bytes]:
    program = f"""
        import sys
        from pathlib import Path
        from callboard.actors.io.vault.file import VaultFile
        from callboard.actors.io.vault.keys import IdentityFile
        file = VaultFile(Path({str(file.path)!r}), IdentityFile(Path({str(identity_of(file))!r})))
    """
    whole = textwrap.dedent(program) + textwrap.dedent(text)
    return subprocess.Popen([*forked_code(whole)], stdout=subprocess.PIPE)


def test_processes_that_write_at_once_lose_nothing(file: VaultFile) -> None:
    """Nor do those that make the identity at once."""
    add = "for n in range(5): file.change(lambda secrets: secrets.update({f'P%d_{n}': 'x' * 3000}))"
    writers = [_a_process(file, add % number) for number in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    assert sorted(file.read()) == sorted(f"P{number}_{n}" for number in range(4) for n in range(5))
    assert identity_of(file).read_text().count("AGE-SECRET-KEY-1") == 1


def test_a_writer_that_is_killed_leaves_a_whole_vault(file: VaultFile) -> None:
    keep(file, FIRST="value")
    for round in range(12):
        writer = _a_process(
            file,
            """
            print(flush=True)
            for n in range(10_000): file.change(lambda secrets: secrets.update(N=str(n), LONG="x" * 200_000))
            """,
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.004 * round)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        assert file.read()["FIRST"] == "value"
        keep(file, ROUND=str(round))
        assert [path.name for path in file.path.parent.iterdir() if path.name.endswith(".part")] == []


def test_a_full_disk_leaves_the_former_vault(file: VaultFile) -> None:
    keep(file, FIRST="value")
    before = file.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(ConfigError, match=r"can't be written: .*; the vault is unchanged"):
            keep(file, LONG="x" * 10_000)
        with pytest.raises(CallboardError):
            file.change(lambda secrets: secrets.update({f"N{n}": "x" * 500 for n in range(20)}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert file.path.read_bytes() == before
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["vault.age", "vault.age.lock"]


def test_a_vault_behind_a_link_stays_behind_it(file: VaultFile, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere.age"
    file.path.parent.mkdir()
    file.path.symlink_to(real)
    keep(file, ONE="first value")
    assert file.path.is_symlink()
    assert real.is_file()
    assert file.read() == {"ONE": "first value"}


def test_one_who_writes_through_a_link_waits_for_who_writes_the_file(file: VaultFile, tmp_path: Path) -> None:
    keep(file, ONE="first value")
    link = VaultFile(tmp_path / "link.age", file.opener)
    link.path.symlink_to(file.path)
    writers = []

    def edit(secrets: dict[str, str]) -> None:
        writers.append(threading.Thread(target=lambda: keep(link, TWO="second")))
        writers[0].start()
        writers[0].join(0.5)
        secrets["THREE"] = "third"

    file.change(edit)
    writers[0].join()
    assert sorted(file.read()) == ["ONE", "THREE", "TWO"]


def test_an_identity_behind_a_link_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    openers = [IdentityFile(tmp_path / name) for name in ("real.txt", "link.txt")]
    make = age.new_identity

    def slowly() -> str:
        time.sleep(0.3)
        return make()

    monkeypatch.setattr(age, "new_identity", slowly)
    sealed: list[bytes] = []
    threads = [threading.Thread(target=lambda each=each: sealed.append(each.seal(b"x"))) for each in openers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [openers[0].open(data) for data in sealed] == [b"x", b"x"]
    assert len(openers[0].own()) == 1


def test_a_directory_that_takes_no_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    file = VaultFile(tmp_path / "taken" / "vault.age", IdentityFile(tmp_path / "identity.txt"))
    assert file.read() == {}
    with pytest.raises(ConfigError, match=says("io.named_files.NamedFiles.write.2", file="the vault …")):
        keep(file, ONE="x")
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(ConfigError, match="Permission denied"):
            keep(VaultFile(tmp_path / "closed" / "vault.age", IdentityFile(tmp_path / "identity.txt")), ONE="x")
