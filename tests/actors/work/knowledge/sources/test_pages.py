"""Pages: what is got, what is refused, and where nobody goes."""

from __future__ import annotations

import gzip
import hashlib
import socket
import zlib
from typing import TYPE_CHECKING, Any

import pytest
import trio
from support.messages import fragment, has_message, says

from callboard.actors.io.http import guarded
from callboard.actors.work.knowledge.sources.specs import parse
from callboard.protocol.errors import UsageError

if TYPE_CHECKING:
    from .conftest import Bench, Site

TEXT = {"Content-Type": "text/plain"}


# --- what a spec means


def test_a_spec_is_a_path_a_page_a_site_or_a_loader_s() -> None:
    loaders = ("git", "jina")
    assert parse("./a:b/c.md", loaders).kind == "path"
    assert parse("notes.md").kind == "path"
    page = parse("https://h/a?b=1#c", loaders)
    assert (page.kind, page.target) == ("page", "https://h/a?b=1")
    site = parse("https://h/a/**")
    assert (site.kind, site.target) == ("crawl", "https://h/a/")
    loaded = parse("jina:https://h/**", loaders)
    assert (loaded.kind, loaded.loader, loaded.target) == ("loader", "jina", "https://h/**")
    assert parse("http://h/", ("http",)).kind == "page"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("", "an empty document source"),
        ("a\0b", "an empty document source"),
        ("https://", "Invalid website"),
        ("https:///**", "Invalid website"),
        ("ftp://h/x", says("work.knowledge.sources.specs.parse.4", scheme="ftp")),
    ],
)
def test_a_spec_that_means_nothing_says_why(spec: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse(spec)


# --- one page


async def test_a_page_is_read_as_what_it_is(bench: Bench, site: Site) -> None:
    site.pages["/spec?v=1"] = "<title>Spec</title><p>It says so.</p>"
    digest, document = await bench.one(f"{site.url}/spec?v=1#part")
    assert (document.source, document.title, document.text) == (f"{site.url}/spec?v=1", "Spec", "It says so.")
    assert digest == document.digest == hashlib.sha256(site.pages["/spec?v=1"].encode()).hexdigest()
    assert site.targets == ["/spec?v=1"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_packed_page_is_unpacked(bench: Bench, site: Site, encoding: str) -> None:
    body = gzip.compress(b"unpacked") if encoding == "gzip" else zlib.compress(b"unpacked")
    site.pages["/"] = (200, {**TEXT, "Content-Encoding": encoding}, body)
    assert await bench.read(f"{site.url}/") == {f"{site.url}/": "unpacked"}


async def test_a_page_that_unpacks_to_too_much_is_refused(bench: Bench, site: Site) -> None:
    bench.settings["page_bytes"] = 1_000_000
    site.pages["/"] = (200, {**TEXT, "Content-Encoding": "gzip"}, gzip.compress(b" " * 20_000_000))
    assert await bench.read(f"{site.url}/") == {}
    assert bench.problems == {f"{site.url}/": "the page is too large: at most 1.0 MB are read of one page"}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((404, {}, b""), fragment("work.knowledge.sources.web.WebReader._raw", status="404", reason_phrase="Said…")),
        ((500, {}, b""), fragment("work.knowledge.sources.web.WebReader._raw", status="500", reason_phrase="Said…")),
        ((200, {"Content-Type": "image/png"}, b"\x89PNG"), "the page is image/png, which is not text"),
        (
            (200, {"Content-Type": "text/plain"}, b"\x89PNG\0\0"),
            fragment("work.knowledge.reading.read._read.2", what="a PNG image"),
        ),
        ((200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, b"no gzip"), "can't be used: Error -3"),
        ((302, {"Location": "file:///etc/passwd"}, b""), "is not an http or https URL"),
        ((302, {"Location": "http://h:port/"}, b""), "Invalid URL in location header"),
        ((302, {"Location": "/x"}, b""), "more than 10 redirects"),
        (
            (429, {"Retry-After": "9999"}, b""),
            fragment("work.knowledge.sources.web.WebReader._raw", status="429", reason_phrase="Said…"),
        ),
    ],
)
async def test_what_can_t_be_read_is_told(bench: Bench, site: Site, answer: Any, why: str) -> None:
    site.pages["/x"] = answer
    assert await bench.read(f"{site.url}/x") == {}
    assert why in bench.problems[f"{site.url}/x"]


async def test_a_server_that_asks_for_time_is_given_some_once(bench: Bench, site: Site) -> None:
    site.answer = lambda target: "<p>now" if len(site.targets) > 1 else (503, {"Retry-After": "0"}, b"")
    assert await bench.read(f"{site.url}/x") == {f"{site.url}/x": "now"}
    site.reset()
    site.answer = lambda target: (503, {"Retry-After": "0"}, b"")
    assert await bench.read(f"{site.url}/x") == {}
    assert has_message(bench.problems[f"{site.url}/x"], "work.knowledge.sources.web.WebReader.get.patiently")
    assert len(site.targets) == 2


async def test_a_server_that_is_not_there_is_one_clear_sentence(bench: Bench) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/"
        await bench.read(url)
    assert bench.problems == {url: "127.0.0.1 can't be reached: Connection refused"}


async def test_a_server_that_says_nothing_is_given_up(bench: Bench, site: Site) -> None:
    bench.settings["page_seconds"] = 0.2
    site.hold = trio.Event()
    await bench.read(f"{site.url}/")
    assert "for 0.2 s" in bench.problems[f"{site.url}/"] or has_message(
        bench.problems[f"{site.url}/"], "work.knowledge.sources.web.WebReader.get.once", page_seconds="0.2"
    )


# --- where nobody goes


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.1.1", "0.0.0.0", "100.64.0.1", "224.0.0.1"),
        *("::1", "::", "fe80::1%eth0", "fd00::1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "2002:0a00:0001::"),
        *("[::1]", "255.255.255.255", "198.18.0.1", "192.0.0.192", "::10.0.0.1", "64:ff9b:1::10.0.0.1", "fec0::1"),
    ],
)
def test_private_addresses_are_known_however_they_are_written(address: str) -> None:
    assert guarded.is_private(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"])
def test_public_addresses_are_not_private(address: str) -> None:
    assert not guarded.is_private(address)


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "64:ff9b::169.254.169.254", "2002:a9fe:a9fe::", "fd00:ec2::254"]
)
def test_credentials_are_never_fetched_however_their_address_is_written(address: str) -> None:
    with pytest.raises(guarded.AddressRefused, match=says("io.http.guarded.check")):
        guarded.check(address, address, allow_private=True)
    guarded.check("64:ff9b::10.0.0.1", "inside", allow_private=True)


async def test_this_machine_is_refused_before_anything_is_connected(bench: Bench, site: Site) -> None:
    bench.settings["allow_private"] = False
    port = site.url.rpartition(":")[2]
    hosts = ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "[::ffff:127.0.0.1]", "[::1]"]
    urls = [f"http://{host}:{port}/" for host in hosts]
    await bench.names(*urls)
    assert site.targets == []
    assert set(bench.problems) == set(urls)
    for url, reason in bench.problems.items():
        assert "private" in reason, (url, reason)


async def test_a_redirect_to_a_private_address_is_refused(bench: Bench, site: Site) -> None:
    """The first host passes only because its check is of the address that the connection has."""
    site.pages["/"] = (302, {"Location": "http://169.254.169.254/latest/meta-data/"}, b"")
    await bench.names(f"{site.url}/")
    assert has_message(bench.problems[f"{site.url}/"], "io.http.guarded.check")


async def test_a_name_that_leads_elsewhere_when_it_is_connected_is_refused(
    bench: Bench, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server may answer differently the second time; then the other end of the connection shows it."""
    bench.settings["allow_private"] = False

    async def innocent(host: str, port: int) -> list[str]:
        return ["93.184.216.34"]

    monkeypatch.setattr(guarded, "resolve", innocent)
    await bench.names(f"{site.url}/")
    assert has_message(bench.problems[f"{site.url}/"], "io.http.guarded.check.2", address="127.0.0.1")
    assert site.targets == []


async def test_a_proxy_on_a_private_network_is_allowed(bench: Bench, site: Site) -> None:
    bench.settings["allow_private"] = False
    bench.environ["HTTP_PROXY"] = site.url
    site.answer = lambda target: f"<p>by proxy: {target}"
    texts = await bench.read("http://example.com/a", "http://10.0.0.1/")
    assert texts == {"http://example.com/a": "by proxy: http://example.com/a"}
    assert has_message(bench.problems["http://10.0.0.1/"], "io.http.guarded.check.2")
    assert site.targets == ["http://example.com/a"]
