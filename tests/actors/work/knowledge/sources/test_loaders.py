"""Loaders: other programs make the text, and whatever they do costs one source."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING

import pytest
from support.messages import fragment, has_message

from callboard.actors.io.vault.file import VaultFile
from callboard.actors.io.vault.keys import IdentityFile
from callboard.actors.io.vault.vault import Vault
from callboard.actors.work.knowledge.reading.limits import Bounds
from callboard.protocol.settings import Settings, VaultSettings

if TYPE_CHECKING:
    from .conftest import Bench, Site

ITEMS = [
    {"path": "./src/a.py", "contents": "x = 1", "metadata": {"lines": 1}},
    {"path": "https://h/b", "text": "text"},
    {"path": "c.bin", "contents": "\0\1\2\3"},
]


def printing(text: str) -> str:
    """A command that prints this, whatever it is given."""
    program = f"import sys; sys.argv[1]; print({text!r}, end='')"
    return f"{sys.executable} -c {shlex.quote(program)} $1"


async def test_the_ending_of_a_file_chooses_its_loader(bench: Bench) -> None:
    bench.settings["loaders"] = {"up": "sh -c 'tr a-z A-Z < \"$1\"'", "copy": "cp $1 $2"}
    bench.file("a file.up", "hello")
    bench.file("b.copy", "as it is")
    bench.file("c.md", "as ever")
    texts = await bench.read(".")
    assert texts == {"a file.up": "HELLO", "b.copy": "as it is", "c.md": "as ever"}


async def test_another_command_is_another_digest(bench: Bench) -> None:
    bench.file("a.x", "same")
    digests = set()
    for command in ("cat $1", "cat -u $1"):
        bench.settings["loaders"] = {"x": command}
        digest, document = await bench.one("a.x")
        assert digest == document.digest
        digests.add(digest)
    assert len(digests) == 2


async def test_a_loader_by_its_name_takes_files_globs_directories_and_anything(bench: Bench) -> None:
    bench.settings["loaders"] = {"say": f"{sys.executable} -c 'import sys; print(sys.argv[1], end=str())' $1"}
    bench.file("docs/a.md")
    bench.file("docs/b.md")
    bench.file("docs/c.txt")
    base = bench.base
    assert await bench.read("say:docs/*.md") == {"docs/a.md": f"{base}/docs/a.md", "docs/b.md": f"{base}/docs/b.md"}
    assert await bench.read("say:./docs/c.txt") == {"docs/c.txt": f"{base}/docs/c.txt"}
    assert await bench.read("say:docs") == {"docs": f"{base}/docs"}
    assert await bench.read("say:https://h/x**") == {"https://h/x**": "https://h/x**"}
    assert await bench.read("say:ticket 5") == {"ticket 5": "ticket 5"}


async def test_a_list_that_a_loader_prints_is_many_sources(bench: Bench) -> None:
    bench.settings["loaders"] = {"git": printing(json.dumps(ITEMS))}
    (bench.base / "repo").mkdir()
    assert await bench.read("git:repo") == {"repo/src/a.py": "x = 1", "https://h/b": "text"}
    assert bench.problems == {"repo/c.bin": fragment("work.knowledge.reading.read._read.2", what="binary data")}


async def test_a_list_of_something_else_is_text(bench: Bench) -> None:
    bench.settings["loaders"] = {"x": printing("[1, 2]"), "y": printing("[not json")}
    assert await bench.read("x:a", "y:b") == {"a": "[1, 2]", "b": "[not json"}


async def test_pages_and_sites_may_have_loaders(bench: Bench, site: Site) -> None:
    bench.settings["loaders"] = {"url": "echo page $1", "recursive_url": printing(json.dumps(ITEMS[1:2]))}
    texts = await bench.read(f"{site.url}/a", f"{site.url}/**")
    assert texts == {f"{site.url}/a": f"page {site.url}/a\n", "https://h/b": "text"}
    assert site.targets == []


async def test_a_page_with_an_ending_of_a_loader_s_is_got_and_handed_over(bench: Bench, site: Site) -> None:
    bench.settings["loaders"] = {"odd": "rev $1"}
    site.pages["/a.odd"] = (200, {"Content-Type": "application/octet-stream"}, b"olleh")
    assert await bench.read(f"{site.url}/a.odd") == {f"{site.url}/a.odd": "hello"}


async def test_a_file_s_name_is_never_a_command(bench: Bench) -> None:
    bench.settings["loaders"] = {"x": "sh -c 'cat \"$1\"'", "y": "cat $1"}
    for ending in ("x", "y"):
        bench.file(f"a; touch evil; $(touch evil) `touch evil`.{ending}", "harmless")
    assert list((await bench.read(".")).values()) == ["harmless", "harmless"]
    assert not (bench.base / "evil").exists()


async def test_secrets_are_put_in_after_the_words_are_known(bench: Bench) -> None:
    bench.environ["TOKEN"] = "a b; 'c"
    bench.settings["loaders"] = {"x": "echo {{TOKEN}} $1", "y": "echo ${MISSING} $1"}
    assert await bench.read("x:1", "y:2") == {"1": "a b; 'c 1\n"}
    assert bench.problems == {"2": "the command of its loader 'y' refers to ${MISSING}, which is not set"}


async def test_secrets_of_the_vault_are_put_in_and_not_told(bench: Bench) -> None:
    identity = IdentityFile(bench.base.parent / "identity.txt")
    file = VaultFile(bench.base.parent / "vault.age", identity)
    file.change(lambda secrets: secrets.update(TOKEN="s3cret-of-a-loader"))
    own = Settings(vault=VaultSettings(identity=str(identity.path)))
    bench.settings["vault"] = Vault(own, bench.base.parent, {})
    program = "import sys; print(len(sys.argv[1])); sys.stderr.write(sys.argv[1]); sys.exit(int(sys.argv[2]))"
    loader = shlex.join([sys.executable, "-c", program, "{{TOKEN}}", "$1"])
    bench.settings["loaders"] = {"x": loader, "y": "echo {{MISSING}} $1"}
    assert await bench.read("x:0", "x:2", "y:3") == {"0": "18\n"}
    assert bench.problems == {
        "2": "its loader 'x': the command exited with status 2: [redacted]",
        "3": "the command of its loader 'y' refers to {{MISSING}}, which is not in the vault or the environment; "
        "add it: callboard vault add MISSING",
    }


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("sh -c 'echo broken >&2; exit 3; $1'", "its loader 'x': the command exited with status 3: broken"),
        ("false $1", "exited with status 1: no message on stderr"),
        ("sh -c 'kill -9 $$; $1'", "was killed by signal 9"),
        ("no-such-program $1", "its loader 'x': "),
        ("echo nothing", "has no place for the input; write $1"),
        ("echo 'open $1", "can't be parsed: No closing quotation"),
        ("true $1 $2", "left no output file"),
        ("yes $1", "the command printed more than"),
        ("sh -c 'yes | head -c 2000 > \"$2\"; : $1'", "left more text than is read of one source"),
        ("head -c 100 /dev/zero $1", fragment("work.knowledge.reading.read._read.2", what="binary data")),
    ],
)
async def test_a_loader_that_fails_costs_one_source(bench: Bench, command: str, why: str) -> None:
    bench.settings |= {"loaders": {"x": command}, "bounds": Bounds(text=1000)}
    bench.file("a.x", "")
    bench.file("b.md", "fine")
    assert await bench.read(".") == {"b.md": "fine"}
    assert why in bench.problems["a.x"]


async def test_a_loader_that_does_not_end_is_ended(bench: Bench) -> None:
    bench.settings |= {"loaders": {"x": "tail -f $1"}, "loader_seconds": 0.3}
    bench.file("a.x", "")
    assert await bench.read(".") == {}
    assert has_message(bench.problems["a.x"], "supervisors.process.run_process.2", argv="…'tail'", timeout="0.3")


async def test_a_loader_that_nobody_knows_is_a_path(bench: Bench) -> None:
    assert await bench.names("pdf:a.pdf") == []
    assert bench.problems == {"pdf:a.pdf": "the path does not exist"}


async def test_a_list_that_is_no_json_is_a_text(bench: Bench) -> None:
    bench.settings["loaders"] = {
        "x": r"""sh -c 'printf "[{\"path\": \"a\\377\"}]"; : $1'""",
        "y": "sh -c 'yes [ | head -n 9999; : $1'",
    }
    assert list(await bench.read("x:1", "y:2")) == ["1", "2"]


async def test_another_command_is_another_reader(bench: Bench) -> None:
    bench.file("a.x", "text")
    readers = []
    for command in ("cat $1", "cat $1", "rev $1"):
        bench.settings["loaders"] = {"x": command}
        await bench.names(".")
        [found] = bench.found
        digest = await bench.as_actor(lambda _, found=found: found.digest())
        assert isinstance(digest, str)
        assert digest.startswith(found.reader)
        readers.append(found.reader)
    assert readers[0] == readers[1] != readers[2]
