"""What `-f` attaches: whole while it is small, looked up when it is not, and never silently left out."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from support.knowledge_library import Hashing
from support.messages import has_message, says

from callboard.actors.io.saved_replies import store_reply
from callboard.actors.work.knowledge import attachments as room
from callboard.actors.work.knowledge.attachments import attached, check
from callboard.actors.work.knowledge.embed.embedder import Embedder
from callboard.actors.work.knowledge.sources.found import SourceContext, SourceSettings
from callboard.protocol.errors import ActorFailed, ConfigError, UsageError
from callboard.protocol.events import Warned
from callboard.supervisors import Actor, Root


class Attacher:
    """Attaches as a run would, in a directory of its own; `warned` are the warnings, by code."""

    def __init__(self, root: Root, here: Path) -> None:
        self.root = root
        self.here = here
        self.environ = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(here.parent / "cache")}
        self.settings = SourceSettings(allow_private=True, loaders={"shout": "tr a-z A-Z $1"})
        self.embedder: Callable[[], Embedder] = _unwanted
        self.warned: dict[str, str] = {}

    async def __call__(self, *files: str, query: str = "") -> str:
        async def body(me: Actor) -> str:
            context = SourceContext(me, self.here, self.settings, self.environ, None)
            return await attached(context, files, query, self.embedder)

        stream = self.root.bus.open("run-1")
        try:
            with stream.listen(lambda event: self._hear(event.data)):
                return await self.root.spawn(body, name="run", stream=stream, link=False).result()
        except ActorFailed as failed:
            raise (failed.__cause__ or failed) from None
        finally:
            self.root.bus.close(stream)

    def _hear(self, data: object) -> None:
        if isinstance(data, Warned):
            self.warned[data.code] = data.message

    def file(self, name: str, contents: str | bytes) -> None:
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())


def _unwanted() -> Embedder:
    raise AssertionError("what fits is not embedded")


@pytest.fixture
async def attacher(tmp_path: Path) -> AsyncIterator[Attacher]:
    """See `Attacher`."""
    here = tmp_path / "here"
    here.mkdir()
    async with Root() as root:
        yield Attacher(root, here)


@contextmanager
def wrong(said: str) -> Iterator[None]:
    """It is wrong usage, and the text says so."""
    with pytest.raises(UsageError, match=said):
        yield


async def test_nothing_attached_is_nothing_said(attacher: Attacher) -> None:
    assert await attacher() == ""


async def test_small_files_go_in_whole_under_their_names_in_order(attacher: Attacher) -> None:
    attacher.file("b.md", "# B\n\nbananas\n")
    attacher.file("a.txt", "apples")
    assert await attacher("b.md", "a.txt") == (
        '<document source="b.md">\n# B\n\nbananas\n</document>\n\n<document source="a.txt">\napples\n</document>'
    )
    assert attacher.warned == {}


async def test_directories_and_globs_bring_all_they_name_and_each_once(attacher: Attacher) -> None:
    attacher.file("docs/a.md", "apples")
    attacher.file("docs/deep/b.md", "bananas")
    attacher.file("docs/c.txt", "cherries")
    text = await attacher("docs/**/*.md", "docs", "docs/a.md")
    assert [text.count(word) for word in ("apples", "bananas", "cherries")] == [1, 1, 1]


async def test_a_name_can_not_end_its_own_quotes(attacher: Attacher) -> None:
    attacher.file('a".md', "apples")
    assert re.fullmatch(
        says("work.knowledge.attachments.attached", source="a&quot;.md", strip="apples"), await attacher('a".md')
    )


async def test_a_page_is_attached_by_its_address(attacher: Attacher, nursery: trio.Nursery) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        body = b"<h1>Plums</h1><p>are blue</p>"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        await stream.send_all(head.encode() + body)

    [listener] = await nursery.start(
        lambda task_status: trio.serve_tcp(serve, 0, host="127.0.0.1", task_status=task_status)
    )
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/plums"
    text = await attacher(url)
    assert text.startswith(f'<document source="{url}">')
    assert "are blue" in text
    attacher.settings = SourceSettings()
    with wrong(says("io.http.guarded.check.2")):
        await attacher(url)


async def test_what_a_command_prints_is_attached(attacher: Attacher) -> None:
    attacher.file("a.md", "apples")
    assert re.fullmatch(
        says("work.knowledge.attachments.attached", source="`cat *.md | tr a A`", strip="Apples"),
        await attacher("`cat *.md | tr a A`"),
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo hush >&2; exit 3", r"exited with status 3: hush\n.*\|\| true"),
        ("kill -9 $$", says("work.knowledge.sources.found.SourceContext.printed.4", signal="9…")),
        ("printf '\\0\\1\\2\\3\\4'", "`printf"),
    ],
)
async def test_a_command_that_fails_attaches_nothing(attacher: Attacher, command: str, said: str) -> None:
    with wrong(said):
        await attacher(f"`{command}`")


async def test_a_command_has_its_time_and_its_room(attacher: Attacher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "COMMAND_SECONDS", 0.1)
    with wrong(says("supervisors.process.run_process.2", timeout="0.1")):
        await attacher("`sleep 60`")
    monkeypatch.setattr(room, "COMMAND_SECONDS", 60)
    with wrong(says("work.knowledge.sources.found.SourceContext.printed")):
        await attacher("`yes`")


async def test_no_file_can_name_a_command(attacher: Attacher) -> None:
    attacher.file("a.md", "`touch made`")
    await attacher("a.md")
    assert not (attacher.here / "made").exists()


async def test_the_last_reply_is_attached_and_only_its_owner_can_read_it(attacher: Attacher) -> None:
    with wrong(says("work.knowledge.attachments._Reading._last_reply.2")):
        await attacher("%%")
    store_reply("first", attacher.environ)
    store_reply("I said so.", attacher.environ)
    assert has_message(await attacher("%%"), "work.knowledge.attachments.attached", strip="I said so.")
    [file] = (attacher.here.parent / "cache" / "callboard").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_loader_is_asked(attacher: Attacher) -> None:
    attacher.settings = SourceSettings(loaders={"shout": "sh -c 'tr a-z A-Z < \"$1\"'"})
    attacher.file("a.md", "apples")
    assert "APPLES" in await attacher("shout:a.md")


async def test_what_gives_nothing_is_wrong_and_what_gives_something_warns_of_the_rest(attacher: Attacher) -> None:
    attacher.file("docs/a.md", "apples")
    attacher.file("docs/b.md", b"\0\1\2\3" * 100)
    with wrong("docs/b.md: "):
        await attacher("docs/b.md")
    assert "apples" in await attacher("docs")
    assert "docs/b.md (" in attacher.warned["files_unreadable"]
    (attacher.here / "empty").mkdir()
    with wrong("empty: " + says("work.knowledge.sources.walk.Walk.named.3")):
        await attacher("empty")


async def test_too_much_is_looked_up_and_told(attacher: Attacher) -> None:
    attacher.embedder = lambda: Hashing()
    for number in range(40):
        attacher.file(f"docs/{number}.md", f"# Part {number}\n\n" + f"filler{number} words here. " * 200)
    attacher.file("docs/plums.md", "Plums are blue.")
    text = await attacher("docs", query="which plums are blue")
    assert "[Source: docs/plums.md]\nPlums are blue." in text
    assert len(text) < room.WHOLE
    assert has_message(attacher.warned["files_indexed"], "work.knowledge.attachments._passages.2", WHOLE="100,000")


async def test_too_much_without_a_prompt_or_a_model_is_told(attacher: Attacher) -> None:
    attacher.file("a.txt", "apples and plums. " * 10_000)
    with wrong(says("work.knowledge.attachments._passages")):
        attacher.embedder = lambda: Hashing()
        await attacher("a.txt")

    def none() -> Embedder:
        raise ConfigError("callboard models pull wordllama")

    attacher.embedder = none
    with pytest.raises(ConfigError, match="models pull"):
        await attacher("a.txt", query="plums")


async def test_far_too_much_names_the_way_to_a_base(attacher: Attacher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST", 1000)
    attacher.file("a.txt", "x " * 1000)
    with wrong(says("work.knowledge.attachments._Reading._keep")):
        await attacher("a.txt")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("https://x/**", r"Invalid website 'https://x/\*\*'"),
        ("nothing.md", says("work.knowledge.attachments.check")),
        ("", "empty"),
        ("gopher://x", says("work.knowledge.sources.specs.parse.4", scheme="gopher")),
    ],
)
def test_what_means_nothing_is_told_before_anything_runs(tmp_path: Path, text: str, said: str) -> None:
    with wrong(said):
        check([text], base=tmp_path)


def test_what_means_something_is_let_pass(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("a")
    check(["a.md", ".", "*.txt", "%%", "`ls`", "https://x/y", "git://x"], ["git"], base=tmp_path)
