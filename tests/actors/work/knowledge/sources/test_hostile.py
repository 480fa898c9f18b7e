"""Hostile documents, through all rooms to a finished base: each costs itself, is told, and harms nobody.

What exactly is refused, and how, is tested where it is done. Here it is counted: time, memory, what was asked for, and
that the good document beside them is found.
"""

from __future__ import annotations

import io
import random
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from support.cpu_time import slowness
from support.knowledge_library import Hashing, hashed
from support.messages import fragment, has_message

from callboard.actors.io.http import guarded
from callboard.actors.work.knowledge.base.base import KnowledgeBase
from callboard.actors.work.knowledge.base.build import build
from callboard.actors.work.knowledge.base.model import BuildReport
from callboard.actors.work.knowledge.reading.limits import MIB
from callboard.actors.work.knowledge.sources.found import SourceSettings
from callboard.actors.work.knowledge.sources.gather import gather
from callboard.actors.work.knowledge.split import split

if TYPE_CHECKING:
    from callboard.supervisors import Actor

    from .conftest import Bench, Site

GOOD = "The good document says: forty-two."


class Built:
    """A base of what some specs name.

    Attributes:
        report: of its build.
        problems: reasons by name.
    """

    def __init__(self, directory: Path, report: BuildReport) -> None:
        self.directory = directory
        self.report = report
        self.problems = {each.source: each.reason for each in report.unreadable}

    async def find(self, text: str) -> str:
        """The text that fits best."""
        base = await KnowledgeBase.open(self.directory)
        try:
            return (await base.retrieve(text, hashed([text])[0], top_k=1)).context
        finally:
            base.close()

    async def sources(self) -> list[str]:
        """What it holds."""
        base = await KnowledgeBase.open(self.directory)
        try:
            return [known.source for known in await base.sources()]
        finally:
            base.close()


async def built(bench: Bench, *specs: str) -> Built:
    """Build it, with all that comes between a document and a base."""
    directory = bench.base.parent / "hostile.kb"
    settings = SourceSettings(**bench.settings)

    async def body(me: Actor) -> BuildReport:
        found = gather(me, specs, base=bench.base, environ=bench.environ, settings=settings)
        return await build(me, directory, found, embedder=Hashing(), splitter=split)

    return Built(directory, await bench.as_actor(body))


@contextmanager
def within(seconds: float, megabytes: int) -> Iterator[None]:
    """Fail if it takes more CPU time or memory; both have five times what it takes."""
    tracemalloc.start()
    began = time.process_time()
    try:
        yield
        took, peak = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert took < seconds * slowness()
    assert peak < megabytes * MIB, f"{peak / MIB:.0f} MB"


@pytest.fixture
async def beside(bench: Bench) -> Bench:
    """The bench with a good document on it, in a base already."""
    bench.file("docs/good.md", GOOD)
    await built(bench, "docs")
    return bench


async def test_a_zip_bomb_is_not_unpacked(beside: Bench) -> None:
    """A hundred megabytes of blanks in half of one, as an Office file, and as what calls itself Markdown."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("word/document.xml", "w") as part:
            for _ in range(100):
                part.write(b" " * MIB)
        archive.writestr("[Content_Types].xml", "<Types/>")
    for name in ("docs/bomb.docx", "docs/bomb.md", "docs/bomb.xlsx"):
        beside.file(name, data.getvalue())
    with within(10, 60):
        base = await built(beside, "docs")
    assert set(base.problems) == {"docs/bomb.docx", "docs/bomb.md", "docs/bomb.xlsx"}
    assert has_message(base.problems["docs/bomb.docx"], "work.knowledge.reading.office.Archive.pieces", ratio=200)
    assert GOOD in await base.find("forty-two")


async def test_a_text_of_two_gigabytes_is_not_read(beside: Bench) -> None:
    for name in ("huge.txt", "huge.md", "huge.json", "huge.html"):
        with (beside.base / "docs" / name).open("wb") as file:
            file.truncate(2 << 30)
    with within(5, 20):
        base = await built(beside, "docs")
    assert len(base.problems) == 4
    assert has_message(
        base.problems["docs/huge.txt"], "work.knowledge.reading.read.check_size", size="2048 MB", most="50 MB"
    )
    assert GOOD in await base.find("forty-two")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("program", b"\x7fELF\x02\x01\x01" + bytes(9) + random.Random(1).randbytes(5000)),
        ("picture", b"\x89PNG\r\n\x1a\n" + random.Random(2).randbytes(5000)),
        ("noise", random.Random(3).randbytes(5000)),
    ],
)
async def test_a_binary_that_is_called_md_is_told(name: str, data: bytes, beside: Bench) -> None:
    beside.file(f"docs/{name}.md", data)
    base = await built(beside, "docs")
    assert set(base.problems) == {f"docs/{name}.md"}
    assert has_message(base.problems[f"docs/{name}.md"], "work.knowledge.reading.read._read.2")
    assert await base.sources() == ["docs/good.md"]


async def test_links_in_circles_end(beside: Bench) -> None:
    docs = beside.base / "docs"
    for number in range(20):
        (docs / f"to{number}").mkdir()
        (docs / f"to{number}" / "up").symlink_to("..")
        (docs / f"to{number}" / "over").symlink_to(f"../to{(number + 1) % 20}")
    (docs / "a").symlink_to("b")
    (docs / "b").symlink_to("a")
    with within(5, 20):
        base = await built(beside, "docs", "docs/**/*.md")
    assert await base.sources() == ["docs/good.md"]
    assert has_message(base.problems["docs/a"], "work.knowledge.sources.walk.Walk._status")
    assert has_message(base.problems["docs/to0/up"], "work.knowledge.sources.walk.Walk._enter")


async def test_a_crawl_trap_ends_at_its_bounds(beside: Bench, site: Site) -> None:
    """A calendar without end, on pages that never say the same, with a session in every link."""
    beside.settings |= {"pages": 20, "depth": 6}

    def page(target: str) -> str | None:
        if target == "/robots.txt":
            return None
        day = zlib.crc32(target.encode())
        return f"day {day}" + "".join(f"<a href='/cal/{day}/{n}?s={day}'>{n}</a>" for n in range(30))

    site.answer = page
    with within(20, 60):
        base = await built(beside, f"{site.url}/cal/**", "docs")
    assert len(site.targets) == 21
    assert len(await base.sources()) == 21
    assert base.problems[f"{site.url}/cal/**"].startswith(fragment("work.knowledge.sources.web.crawl", pages="…20"))
    assert GOOD in await base.find("forty-two")


async def test_the_scripts_of_a_page_are_neither_run_nor_fetched_nor_kept(beside: Bench, site: Site) -> None:
    site.pages["/page"] = f"""<html><head><title>T</title>
        <script src="{site.url}/script.js"></script><link rel=stylesheet href="{site.url}/style.css">
        <meta http-equiv=refresh content="0;url={site.url}/refreshed"></head>
        <body onload="fetch('{site.url}/loaded')"><script>fetch('{site.url}/fetched')</script>
        <img src="{site.url}/pixel.png" onerror="alert(1)"><iframe src="{site.url}/frame"></iframe>
        <object data="{site.url}/object"></object><svg onload="alert(2)"></svg>
        <a href="javascript:alert(3)">click</a> <p>What it says.</p><template>not shown</template></body></html>"""
    base = await built(beside, f"{site.url}/page")
    assert site.targets == ["/page"]
    assert base.problems == {}
    found = await base.find("says")
    assert "What it says." in found
    assert not {word for word in ("fetch", "alert", "script", "http-equiv") if word in found.partition("\n")[2]}


# --- where nobody goes


class Names(trio.abc.HostnameResolver):
    """A name server whose answers change with every question."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)

    async def getaddrinfo(
        self, host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> Any:
        address = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [(trio.socket.AF_INET, trio.socket.SOCK_STREAM, 6, "", (address, port))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise AssertionError("nobody asks for that")


async def test_pages_of_private_networks_are_refused_unless_they_are_allowed(beside: Bench, site: Site) -> None:
    site.pages["/"] = "inside"
    beside.settings["allow_private"] = False
    refused = await built(beside, f"{site.url}/", f"{site.url}/docs/**", "docs")
    assert site.targets == []
    assert all("private" in reason for reason in refused.problems.values())
    assert set(refused.problems) == {f"{site.url}/", f"{site.url}/docs/", f"{site.url}/docs"}
    assert await refused.sources() == ["docs/good.md"]
    beside.settings["allow_private"] = True
    assert await (await built(beside, f"{site.url}/")).sources() == [f"{site.url}/"]


async def test_a_name_of_a_private_address_is_refused(beside: Bench, site: Site) -> None:
    beside.settings["allow_private"] = False
    port = site.url.rpartition(":")[2]
    trio.socket.set_custom_hostname_resolver(Names("127.0.0.1"))
    base = await built(beside, f"http://harmless.example:{port}/")
    assert "private" in base.problems[f"http://harmless.example:{port}/"]
    assert site.targets == []


async def test_a_name_that_turns_private_between_two_looks_is_refused(beside: Bench, site: Site) -> None:
    beside.settings["allow_private"] = False
    port = site.url.rpartition(":")[2]
    trio.socket.set_custom_hostname_resolver(Names("93.184.216.34", "127.0.0.1"))
    base = await built(beside, f"http://rebinding.example:{port}/")
    assert "private" in base.problems[f"http://rebinding.example:{port}/"]
    assert site.targets == [], "a connection that leads there is not spoken through"


async def test_a_redirect_to_a_private_address_is_refused(
    beside: Bench, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site's own address counts as public here, for a public one is not to be had."""
    beside.settings["allow_private"] = False
    truly = guarded.is_private
    monkeypatch.setattr(guarded, "is_private", lambda address: address != "127.0.0.1" and truly(address))
    port = site.url.rpartition(":")[2]
    site.pages |= {
        "/": "public",
        "/there": (302, {"Location": f"http://127.0.0.2:{port}/secret"}, b""),
        "/keys": (302, {"Location": "http://169.254.169.254/latest/meta-data/"}, b""),
        "/file": (302, {"Location": "file:///etc/passwd"}, b""),
    }
    base = await built(beside, f"{site.url}/", f"{site.url}/there", f"{site.url}/keys", f"{site.url}/file")
    assert await base.sources() == [f"{site.url}/"]
    assert has_message(base.problems[f"{site.url}/there"], "io.http.guarded.check.2")
    assert "credentials" in base.problems[f"{site.url}/keys"]
    assert has_message(base.problems[f"{site.url}/file"], "io.http.guarded.followed")
    assert "/secret" not in site.targets


async def test_credentials_of_clouds_are_never_fetched(beside: Bench) -> None:
    beside.settings["allow_private"] = True
    url = "http://169.254.169.254/latest/meta-data/"
    assert has_message((await built(beside, url, "docs")).problems[url], "io.http.guarded.check")
