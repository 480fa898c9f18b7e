"""fetch_url_via_curl and the searches, against real servers on loopback."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
import trio
from support.messages import fragment, says

from callboard.actors.io.http import guarded
from callboard.actors.io.http.guarded import is_metadata
from callboard.actors.work.tools.builtin import web
from callboard.protocol.errors import ToolFailed

if TYPE_CHECKING:
    from .conftest import Bench, Site


# --- one page


async def test_a_page_is_made_readable_and_its_links_complete(call: Bench, site: Site) -> None:
    site.page("<html><title>T</title><script>no</script><p>some <a href='/x'>link</a></p>")
    text = await call("fetch_url_via_curl", url=f"{site.url}/d/page")
    assert text == f"# T\n\nsome [link]({site.url}/x)"
    assert site.targets == ["/d/page"]


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/atom+xml", "text/x-python", ""])
async def test_what_is_no_html_comes_as_it_is(call: Bench, site: Site, kind: str) -> None:
    site.page("a < b\n  <c>", kind)
    assert await call("fetch_url_via_curl", url=site.url) == "a < b\n  <c>"


async def test_charsets_are_those_that_the_server_or_the_page_names(call: Bench, site: Site) -> None:
    site.page("caf\xe9".encode("latin-1"), "text/plain; charset=iso-8859-1")
    assert await call("fetch_url_via_curl", url=site.url) == "café"
    site.page("<meta charset='windows-1251'>привет".encode("cp1251"), "text/html")
    assert await call("fetch_url_via_curl", url=site.url) == "привет"
    site.page("привет".encode("utf-16"), "text/plain; charset=utf-16")
    assert await call("fetch_url_via_curl", url=site.url) == "привет"
    site.page(b"<meta charset=nonsense>caf\xc3\xa9", "text/html")
    assert await call("fetch_url_via_curl", url=site.url) == "café"


@pytest.mark.parametrize(
    "named", ["undefined", "idna", "punycode", "rot13", "hex", "unicode_escape", "\u0131", "nonsense"]
)
async def test_a_charset_that_is_none_is_no_matter(call: Bench, site: Site, named: str) -> None:
    page = f"<meta charset={named}>" + "caf\xe9 \\x41 " * 40
    site.page(page, "text/html")
    assert "caf\xe9 \\x41" in await call("fetch_url_via_curl", url=site.url)
    if named.isascii():
        site.page(page, f"text/plain; charset={named}")
        assert "caf\xe9" in await call("fetch_url_via_curl", url=site.url)


async def test_a_compressed_page_is_unpacked(call: Bench, site: Site) -> None:
    body = gzip.compress(b"unpacked")
    site.answer = lambda target: (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, body)
    assert await call("fetch_url_via_curl", url=site.url) == "unpacked"


async def test_an_error_page_is_told_with_its_status_and_beginning(call: Bench, site: Site) -> None:
    site.page("no such page", "text/plain", 404)
    with pytest.raises(ToolFailed, match=f"{site.url}/x answered 404") as caught:
        await call("fetch_url_via_curl", url=f"{site.url}/x")
    assert caught.value.stderr == "no such page"


async def test_what_is_no_text_is_told_by_its_kind(call: Bench, site: Site) -> None:
    site.page(b"\x89PNG\0", "image/png")
    with pytest.raises(ToolFailed, match="is image/png, not text"):
        await call("fetch_url_via_curl", url=site.url)


async def test_redirects_are_followed_but_not_for_ever(call: Bench, site: Site) -> None:
    def answer(target: str) -> tuple[int, dict[str, str], bytes]:
        left = int(target.strip("/"))
        return (302, {"Location": f"/{left - 1}"}, b"") if left else (200, {"Content-Type": "text/plain"}, b"there")

    site.answer = answer
    assert await call("fetch_url_via_curl", url=f"{site.url}/{guarded.REDIRECTS}") == "there"
    with pytest.raises(ToolFailed, match=f"more than {guarded.REDIRECTS} redirects"):
        await call("fetch_url_via_curl", url=f"{site.url}/{guarded.REDIRECTS + 1}")


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://h/x", "gopher://h"])
async def test_a_redirect_leads_to_http_only(call: Bench, site: Site, location: str) -> None:
    site.answer = lambda target: (302, {"Location": location}, b"")
    with pytest.raises(ToolFailed, match=says("io.http.guarded.followed")):
        await call("fetch_url_via_curl", url=site.url)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://h/x", "http://", "http://[", "https://\0", "http://a b/"])
async def test_what_is_no_web_address_is_refused(call: Bench, url: str) -> None:
    with pytest.raises(ToolFailed):
        await call("fetch_url_via_curl", url=url)


async def test_an_unreachable_server_is_one_clear_sentence(call: Bench, nowhere: str) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.web._asked", who="127.0.0.1")):
        await call("fetch_url_via_curl", url=nowhere)


async def test_a_server_that_stalls_is_given_up(call: Bench, site: Site) -> None:
    site.stall = True
    call.timeout = 0.1
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.web.get", within="0.1")):
        await call("fetch_url_via_curl", url=site.url)


async def test_a_large_page_is_cut(call: Bench, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.page("x" * 500_000, "text/plain")
    text = await call("fetch_url_via_curl", url=site.url)
    assert text == "x" * web.RESULT + f"\n[cut: {500_000 - web.RESULT} more characters]"
    monkeypatch.setattr(web, "LARGEST", 1000)
    assert await call("fetch_url_via_curl", url=site.url) == "x" * 1000 + fragment(
        "work.tools.builtin.web.fetch_url_via_curl.3"
    )


async def test_of_a_large_page_no_more_is_lost_than_the_line_in_which_it_is_cut(
    call: Bench, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "LARGEST", 1000)
    site.page("a\n" * 400 + "x" * 500, "text/plain")
    assert await call("fetch_url_via_curl", url=site.url) == "a\n" * 399 + fragment(
        "work.tools.builtin.web.fetch_url_via_curl.3", text="…a"
    )
    monkeypatch.setattr(web, "NEARBY", 100)
    assert (await call("fetch_url_via_curl", url=site.url)).count("x") == 200


async def test_a_page_made_to_keep_the_parser_busy_is_read_as_far_as_time_allows(
    call: Bench, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "CONVERTING", 0.0)
    site.page("<p>x" * 100_000)
    assert (await call("fetch_url_via_curl", url=site.url)).endswith(
        fragment("work.tools.builtin.web.fetch_url_via_curl.3")
    )


# --- where not to go


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "169.254.170.2", "[fe80::1]", "[fd00:ec2::254]", "100.100.100.200", "[::ffff:169.254.169.254]"],
)
async def test_addresses_of_credentials_are_refused(call: Bench, site: Site, host: str) -> None:
    with pytest.raises(ToolFailed, match=says("io.http.guarded.check")):
        await call("fetch_url_via_curl", url=f"http://{host}/latest/meta-data/")
    site.answer = lambda target: (302, {"Location": f"http://{host}/"}, b"")
    with pytest.raises(ToolFailed, match=says("io.http.guarded.check")):
        await call("fetch_url_via_curl", url=site.url)


async def test_a_name_that_leads_there_is_refused_before_a_byte_is_sent(
    call: Bench, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is of the connection's other end. Loopback stands for the forbidden address here."""
    monkeypatch.setattr(guarded, "is_metadata", lambda address: address == "127.0.0.1")
    with pytest.raises(ToolFailed, match=says("io.http.guarded.check", host="localhost")):
        await call("fetch_url_via_curl", url=site.url.replace("127.0.0.1", "localhost"))
    assert site.targets == []


@pytest.mark.parametrize(
    "address",
    [
        "192.0.0.192",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "::169.254.169.254",
        "64:ff9b:1::a9fe:a9fe",
        "fe80::1%eth0",
    ],
)
def test_credentials_are_found_however_their_address_is_wrapped(address: str) -> None:
    assert is_metadata(address)
    assert is_metadata(f"[{address}]")


def test_private_addresses_are_allowed() -> None:
    for address in ("127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "::1", "fd00::1", "8.8.8.8"):
        assert not is_metadata(address)


# --- searches


def asked(site: Site) -> dict[str, str]:
    """The parameters of the last request."""
    return {name: values[0] for name, values in parse_qs(urlsplit(site.targets[-1]).query).items()}


async def test_wikipedia_gives_the_beginnings_of_the_best_articles(call: Bench, site: Site) -> None:
    call.environ["CALLBOARD_WIKIPEDIA_URL"] = f"{site.url}/w/api.php"
    pages = [
        {"title": "Second", "index": 2, "fullurl": "http://w/2", "extract": "b" * 9000},
        {"title": "First", "index": 1, "fullurl": "http://w/1", "extract": "a"},
    ]
    site.page(json.dumps({"query": {"pages": pages}}), "application/json")
    found = await call("search_wikipedia", query="kings & queens")
    assert found[0] == {"title": "First", "url": "http://w/1", "text": "a"}
    assert found[1]["text"] == "b" * 4000
    assert asked(site)["gsrsearch"] == "kings & queens"
    site.page("{}", "application/json")
    assert await call("search_wikipedia", query="x") == "(nothing found)"
    site.page("[1]", "application/json")
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.web.search_wikipedia")):
        await call("search_wikipedia", query="x")


ATOM = """<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><title>feed</title>
<entry><id>http://arxiv.org/abs/1</id><published>2020-01-02T00:00:00Z</published><title>A
  Title</title><summary> Some
  words </summary><author><name>A. One</name></author><author><name>B. Two</name></author></entry></feed>"""


async def test_arxiv_gives_papers(call: Bench, site: Site) -> None:
    call.environ["CALLBOARD_ARXIV_URL"] = site.url
    site.page(ATOM, "application/atom+xml")
    assert await call("search_arxiv", query="graphs") == [
        {
            "title": "A Title",
            "authors": ["A. One", "B. Two"],
            "published": "2020-01-02",
            "url": "http://arxiv.org/abs/1",
            "summary": "Some words",
        }
    ]
    assert asked(site)["search_query"] == "all:graphs"
    site.page("not xml", "text/plain")
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.web._papers")):
        await call("search_arxiv", query="x")


RESULTS = """<div class="result"><h2><a rel="nofollow" class="result__a"
 href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fexample.org%2Fa%3Fb%3D1&amp;rut=x">An <b>example</b></a></h2>
 <a class="result__snippet" href="#">Some <b>words</b> about it</a></div>
 <div class="result result--ad"><a class="result__a" href="https://duckduckgo.com/y.js?ad=1">Ad</a></div>
 <div class="result"><a class="result__a" href="https://plain.org/">Plain</a></div>"""


async def test_the_web_search_gives_pages_without_advertisements(call: Bench, site: Site) -> None:
    call.environ["CALLBOARD_WEB_SEARCH_URL"] = f"{site.url}/html/"
    site.page(RESULTS)
    assert await call("web_search_loki", query="a b") == [
        {"title": "An example", "url": "https://example.org/a?b=1", "text": "Some words about it"},
        {"title": "Plain", "url": "https://plain.org/", "text": ""},
    ]
    assert asked(site) == {"q": "a b"}
    site.page("<div class='no-results'>No results.</div>")
    assert await call("web_search_loki", query="x") == "(nothing found)"


async def test_a_web_search_that_wants_a_person_is_told_as_not_reachable(call: Bench, site: Site) -> None:
    call.environ["CALLBOARD_WEB_SEARCH_URL"] = site.url
    site.page("<form>Select all squares with ducks</form>", status=202)
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.web.web_search_loki.3")):
        await call("web_search_loki", query="x")


async def test_the_weather_is_asked_for_the_place_as_it_is_written(call: Bench, site: Site) -> None:
    call.environ["CALLBOARD_WEATHER_URL"] = site.url
    site.page("Sao Paulo: sunny +20C\n", "text/plain")
    assert await call("get_current_weather", location="São Paulo/x?y") == "Sao Paulo: sunny +20C"
    assert urlsplit(site.targets[-1]).path == "/S%C3%A3o%20Paulo%2Fx%3Fy"
    assert asked(site)["format"] == "4"


@pytest.mark.parametrize(
    ("tool", "variable", "who", "argument"),
    [
        ("search_wikipedia", "CALLBOARD_WIKIPEDIA_URL", "Wikipedia", "query"),
        ("search_arxiv", "CALLBOARD_ARXIV_URL", "arXiv", "query"),
        ("web_search_loki", "CALLBOARD_WEB_SEARCH_URL", "the web search", "query"),
        ("get_current_weather", "CALLBOARD_WEATHER_URL", "the weather service", "location"),
    ],
)
async def test_a_service_that_is_down_is_told_as_not_reachable(
    call: Bench, nowhere: str, site: Site, tool: str, variable: str, who: str, argument: str
) -> None:
    call.environ[variable] = nowhere
    with pytest.raises(ToolFailed, match=f"^{who} can't be reached: Connection refused$"):
        await call(tool, **{argument: "x"})
    call.environ[variable] = site.url
    site.page("overloaded", "text/plain", 503)
    with pytest.raises(ToolFailed, match=f"^{who} can't be reached: .* answered 503"):
        await call(tool, **{argument: "x"})


async def test_the_time_is_told_with_its_zone(call: Bench) -> None:
    told = await call("get_current_time")
    assert re.fullmatch(r"[A-Z][a-z]+day \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+ \(UTC[+-]\d\d:\d\d\)", told)


async def test_a_cancelled_fetch_closes_its_connection(call: Bench, site: Site) -> None:
    site.stall = True
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: call("fetch_url_via_curl", url=site.url))
            while not site.targets:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        await site.hung_up.wait()
