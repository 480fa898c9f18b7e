"""Crawls of a site on loopback: what is followed, in which order, and what ends them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import fragment, has_message

from callboard.actors.work.knowledge.sources.web import ROBOT, robots_in

if TYPE_CHECKING:
    from .conftest import Bench, Site


def page(*links: str, text: str = "") -> str:
    """A page with these links; its text makes it another than those with other links."""
    return f"<p>{text or ' '.join(links)}</p>" + "".join(f"<a href='{link}'>to {link}</a>" for link in links)


async def test_all_pages_below_the_prefix_come_level_by_level(bench: Bench, site: Site) -> None:
    site.pages |= {
        "/docs/": page("b.html", "a.html", "/other/", "https://example.com/docs/", "pic.png", "../docs/a.html#part"),
        "/docs/b.html": page("deep/c.html", "a.html"),
        "/docs/a.html": page("deep/d.html", "/docs"),
        "/docs/deep/c.html": page("../missing.html"),
        "/docs/deep/d.html": page("/docs/"),
        "/other/": page("x"),
    }
    bench.settings["at_once"] = 2
    names = await bench.names(f"{site.url}/docs/**")
    assert [name.removeprefix(site.url) for name in names] == [
        *("/docs/", "/docs/b.html", "/docs/a.html", "/docs/deep/c.html", "/docs/deep/d.html"),
    ]
    assert bench.problems == {
        f"{site.url}/docs": fragment("work.knowledge.sources.web.WebReader._raw", status="404", reason_phrase="Said…"),
        f"{site.url}/docs/missing.html": fragment(
            "work.knowledge.sources.web.WebReader._raw", status="404", reason_phrase="Said…"
        ),
    }
    assert site.targets.count("/robots.txt") == 1
    assert len(site.targets) == len(set(site.targets)), "no page is got twice"


async def test_robots_txt_is_obeyed(bench: Bench, site: Site) -> None:
    site.pages |= {
        "/robots.txt": (200, {"Content-Type": "text/plain"}, b"User-agent: *\nDisallow: /secret\nDisallow: /*.txt$"),
        "/": page("secret/a", "open", "b.txt"),
        "/open": page(text="open"),
        "/secret/a": page(text="secret"),
    }
    assert await bench.names(f"{site.url}/**") == [f"{site.url}/", f"{site.url}/open"]
    assert has_message(bench.problems[f"{site.url}/secret/a"], "work.knowledge.sources.web._Crawl._get")
    assert not {"/secret/a", "/b.txt"} & set(site.targets)


async def test_a_broken_robots_txt_allows_nothing(bench: Bench, site: Site) -> None:
    site.pages |= {"/robots.txt": (500, {}, b""), "/": page(text="x")}
    assert await bench.names(f"{site.url}/**") == []
    assert bench.problems == {f"{site.url}/": "the robots.txt of its host can't be read: the server answered 500 Said"}


async def test_an_endless_site_ends_at_the_cap_and_says_so(bench: Bench, site: Site) -> None:
    bench.settings["pages"] = 30

    def trap(target: str) -> str:
        number = int(target.partition("=")[2] or 0)
        return page(f"/cal?day={number + 1}", f"/cal?day={number + 1000}", text=f"day {number}")

    site.answer = lambda target: None if target == "/robots.txt" else trap(target)
    names = await bench.names(f"{site.url}/cal**")
    assert len(names) == 30
    assert len(site.targets) == 31
    assert bench.problems[f"{site.url}/cal**"].startswith(fragment("work.knowledge.sources.web.crawl", pages="…30"))


async def test_depth_is_capped(bench: Bench, site: Site) -> None:
    bench.settings["depth"] = 3
    site.answer = lambda target: None if "robots" in target else page(f"/{len(target)}{'x' * len(target)}", text=target)
    assert len(await bench.names(f"{site.url}/**")) == 4


async def test_links_that_lead_into_themselves_end(bench: Bench, site: Site) -> None:
    site.answer = lambda target: None if "robots" in target else page("again/", text=target)
    names = await bench.names(f"{site.url}/**")
    assert [name.removeprefix(site.url) for name in names] == ["/", "/again/", "/again/again/", "/again/again/again/"]


async def test_the_same_page_under_endless_names_comes_once(bench: Bench, site: Site) -> None:
    """Session ids in links: the bytes are the same, so neither the page nor its links count again."""
    same = page("/?s=1", "/?s=2", "/?s=3")
    site.answer = lambda target: None if "robots" in target else same
    assert await bench.names(f"{site.url}/**") == [f"{site.url}/"]
    assert len(site.targets) == 5


async def test_redirects_stay_inside_and_count_once(bench: Bench, site: Site) -> None:
    site.pages |= {
        "/docs/": page("old", "new", "out", "round"),
        "/docs/old": (301, {"Location": "/docs/new"}, b""),
        "/docs/new": page(text="new"),
        "/docs/out": (302, {"Location": "/private"}, b""),
        "/docs/round": (302, {"Location": "/docs/round"}, b""),
        "/private": page(text="private"),
    }
    assert await bench.names(f"{site.url}/docs/**") == [f"{site.url}/docs/", f"{site.url}/docs/new"]
    assert has_message(bench.problems[f"{site.url}/docs/out"], "io.http.guarded.followed.2")
    assert has_message(bench.problems[f"{site.url}/docs/round"], "io.http.guarded.followed.6", REDIRECTS=10)
    assert "/private" not in site.targets


async def test_a_site_that_knows_its_first_page_without_a_slash_only(bench: Bench, site: Site) -> None:
    site.pages |= {"/docs": page("/docs/a", "/docsother"), "/docs/a": page(text="a")}
    assert await bench.names(f"{site.url}/docs/**") == [f"{site.url}/docs", f"{site.url}/docs/a"]


async def test_another_host_that_begins_the_same_is_another_host(bench: Bench, site: Site) -> None:
    port = site.url.rpartition(":")[2]
    site.pages["/"] = page(
        f"http://127.0.0.1.example.com:{port}/", f"http://127.0.0.1:1{port}/", f"//localhost:{port}/"
    )
    assert await bench.names(f"{site.url}**") == [f"{site.url}/"]
    assert bench.problems == {}


async def test_only_a_few_pages_are_got_at_once_and_not_without_pause(bench: Bench, site: Site) -> None:
    bench.settings |= {"at_once": 3, "delay": 0.02}
    site.pages["/"] = page(*(f"/{number}" for number in range(12)))
    site.pages |= {f"/{number}": page(text=str(number)) for number in range(12)}
    assert len(await bench.names(f"{site.url}/**")) == 13
    assert site.most <= 3
    assert site.times[-1] - site.times[0] >= 13 * 0.02 * 0.9


async def test_what_is_no_page_costs_only_itself(bench: Bench, site: Site) -> None:
    bench.settings["page_bytes"] = 10_000
    site.pages |= {
        "/": page("huge", "film", "pdf", "ok", "hidden"),
        "/huge": "x" * 20_000,
        "/film": (200, {"Content-Type": "video/mp4"}, b"..."),
        "/pdf": (200, {"Content-Type": "application/pdf"}, b"%PDF-broken"),
        "/hidden": "<meta name=robots content=noindex><a href=/more>m</a>",
        "/more": page(text="more"),
        "/ok": "<script>location='/evil'</script>fine<a href=\"javascript:go('/evil')\">x</a>",
    }
    texts = await bench.read(f"{site.url}/**")
    assert {name.removeprefix(site.url) for name in texts} == {"/", "/ok", "/more"}
    assert texts[f"{site.url}/ok"] == "finex"
    assert {name.removeprefix(site.url) for name in bench.problems} == {"/huge", "/film", "/pdf"}
    assert "/evil" not in site.targets


async def test_an_interrupted_crawl_goes_on_where_it_was(bench: Bench, site: Site, tmp_path: Path) -> None:
    bench.history = tmp_path / "trail"
    site.pages["/"] = page(*(f"/{number}" for number in range(6)))
    site.pages |= {f"/{number}": page(f"/{number}/below", text=str(number)) for number in range(6)}
    site.pages |= {f"/{number}/below": page(text=f"below {number}") for number in range(6)}
    bench.settings["pages"] = 7
    first = await bench.names(f"{site.url}/**")
    (file,) = bench.history.iterdir()
    file.write_bytes(file.read_bytes()[:-40])  # killed while it wrote: the last line is cut off
    site.reset()

    bench.settings["pages"] = 500
    names = await bench.names(f"{site.url}/**")
    assert names[:7] == first
    assert len(names) == 13
    assert set(site.targets) == {"/robots.txt", "/5", *(f"/{number}/below" for number in range(6))}
    site.reset()

    assert await bench.names(f"{site.url}/**") == names
    assert site.targets == []
    texts = await bench.read(f"{site.url}/**")
    assert texts[f"{site.url}/0/below"] == "below 0"
    assert list(texts) == names
    assert sorted(site.targets) == sorted(name.removeprefix(site.url) for name in names)


# --- robots.txt


@pytest.mark.parametrize(
    ("rules", "target", "allowed"),
    [
        ("", "/x", True),
        ("User-agent: *\nDisallow:", "/x", True),
        ("User-agent: *\nDisallow: /", "/x", False),
        ("User-agent: other\nDisallow: /", "/x", True),
        ("User-agent: other\nUser-agent: CallBoard/1.0\nDisallow: /", "/x", False),
        ("User-agent: *\nDisallow: /\nUser-agent: callboard\nAllow: /", "/x", True),
        ("User-agent: *\nDisallow: /a\nAllow: /a/b", "/a/b/c", True),
        ("User-agent: *\nDisallow: /a/b\nAllow: /a", "/a/b/c", False),
        ("User-agent: *\nDisallow: /a\nAllow: /a", "/a", True),
        ("User-agent: *\nDisallow: /*?sort=", "/list?sort=up", False),
        ("User-agent: *\nDisallow: /*.pdf$", "/a.pdf", False),
        ("User-agent: *\nDisallow: /*.pdf$", "/a.pdf?x", True),
        ("User-agent: *\nDisallow: /x$", "/x", False),
        ("User-agent: *\nDisallow: /x$", "/xy", True),
        ("# a comment\nUSER-AGENT: * # all\nDISALLOW: /x # this", "/x", False),
        ("Disallow: /", "/x", True),
    ],
)
def test_robots_rules(rules: str, target: str, allowed: bool) -> None:
    assert robots_in(rules).can_fetch(f"http://h{target}", ROBOT) is allowed


def test_a_delay_that_robots_txt_asks_for_is_known() -> None:
    assert robots_in("User-agent: *\nCrawl-delay: 1.5").crawl_delay(ROBOT) == 1.5
    for none in ("soon", "-5", "inf", "nan"):
        assert robots_in(f"User-agent: *\nCrawl-delay: {none}").crawl_delay(ROBOT) is None


def test_a_rule_made_to_keep_us_busy_does_not() -> None:
    robots = robots_in("User-agent: *\nDisallow: /" + "*a" * 2000 + "$")
    assert robots.can_fetch("http://h/" + "a" * 1999 + "b", ROBOT)


@given(st.text(alphabet="\n:/*$%4G#?ü\ufffd ", max_size=60), st.sampled_from(["User-agent: *\n", "Crawl-delay:", ""]))
def test_any_text_is_a_robots_txt(text: str, before: str) -> None:
    robots_in(f"User-agent: *\nDisallow: /x{text}\n{before}{text}").can_fetch("http://h/x%2F?a=%", ROBOT)
