"""GitHub, as a server on loopback: branches by the list of the API, wikis without what is around the article."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.messages import has_message

from callboard.actors.work.knowledge.sources.found import GitHub

if TYPE_CHECKING:
    from .conftest import Bench, Site

TREE = "/api/repos/o/r/git/trees/main?recursive=1"


def listed(*paths: str, truncated: bool = False, size: int = 5) -> tuple[int, dict[str, str], bytes]:
    """GitHub's answer to who wants a tree."""
    entries: list[dict[str, Any]] = [{"path": "docs", "type": "tree", "sha": "d"}]
    entries += [{"path": path, "type": "blob", "sha": f"sha of {path}", "size": size} for path in paths]
    body = json.dumps({"sha": "s", "tree": entries, "truncated": truncated}).encode()
    return 200, {"Content-Type": "application/json; charset=utf-8"}, body


def text(words: str) -> tuple[int, dict[str, str], bytes]:
    """A file."""
    return 200, {"Content-Type": "text/plain; charset=utf-8"}, words.encode()


@pytest.fixture
async def hub(bench: Bench, site: Site) -> Site:
    """A site that is GitHub."""
    bench.settings["github"] = GitHub(site=site.url, api=f"{site.url}/api", raw=f"{site.url}/raw")
    return site


async def test_a_directory_of_a_branch_is_read_by_githubs_own_list(bench: Bench, hub: Site) -> None:
    hub.pages |= {
        TREE: listed("docs/b.md", "docs/a b.MD", "docs/deep/c.rst", "docs/code.py", "README.md", "docs2/x.md"),
        "/raw/o/r/main/docs/b.md": text("# b"),
        "/raw/o/r/main/docs/a%20b.MD": text("# a"),
        "/raw/o/r/main/docs/deep/c.rst": text("c"),
    }
    texts = await bench.read(f"{hub.url}/o/r/tree/main/docs/**")
    raw = f"{hub.url}/raw/o/r/main/docs"
    assert texts == {f"{raw}/a%20b.MD": "# a", f"{raw}/b.md": "# b", f"{raw}/deep/c.rst": "c"}
    assert bench.problems == {}
    assert len(hub.targets) == 4, "no page of GitHub's is got"


async def test_a_whole_branch_is_read_without_change_logs_and_licences(bench: Bench, hub: Site) -> None:
    hub.pages[TREE] = listed("README.md", "CHANGELOG.md", "docs/Changes.md", "LICENSE.md", "docs/licenses.md")
    names = await bench.names(f"{hub.url}/o/r/tree/main**")
    assert [name.rpartition("/main/")[2] for name in names] == ["README.md", "docs/licenses.md"]


async def test_what_has_not_changed_is_known_by_its_checksum_and_not_got(bench: Bench, hub: Site) -> None:
    hub.pages[TREE] = listed("README.md")
    await bench.names(f"{hub.url}/o/r/tree/main/**")
    assert [await found.digest() for found in bench.found] == ["git:sha of README.md"]
    assert hub.targets == [TREE]


async def test_what_can_not_be_listed_is_told(bench: Bench, hub: Site) -> None:
    spec = f"{hub.url}/o/r/tree/main/**"
    assert await bench.names(spec) == []
    assert bench.problems == {spec: "the list of files can't be read from GitHub: the server answered 404 Said"}
    hub.pages[TREE] = text("no JSON")
    await bench.names(spec)
    assert has_message(bench.problems[spec], "work.knowledge.sources.web._listing")
    hub.pages[TREE] = listed("a.py")
    await bench.names(spec)
    assert bench.problems[spec].startswith("the repository has no documentation")


async def test_a_list_without_end_is_cut_off_and_told(bench: Bench, hub: Site) -> None:
    bench.settings["pages"] = 3
    spec = f"{hub.url}/o/r/tree/main/**"
    hub.pages[TREE] = listed(*(f"{number}.md" for number in range(5)))
    assert len(await bench.names(spec)) == 3
    assert bench.problems == {spec: "3 of 5 files were read, which is the limit"}
    hub.pages[TREE] = listed("a.md", truncated=True)
    assert len(await bench.names(spec)) == 1
    assert has_message(bench.problems[spec], "work.knowledge.sources.web.github_files.3")


async def test_a_file_that_is_too_large_is_not_got(bench: Bench, hub: Site) -> None:
    hub.pages[TREE] = listed("a.md", size=2 << 30)
    assert await bench.read(f"{hub.url}/o/r/tree/main/**") == {}
    assert has_message(bench.problems[f"{hub.url}/raw/o/r/main/a.md"], "work.knowledge.reading.read.check_size")
    assert hub.targets == [TREE]


def wiki(body: str, *around: str) -> str:
    """A page of a wiki."""
    links = "".join(f"<a href='/o/r/wiki{link}'>{link}</a>" for link in around)
    return f"<title>W</title><div>Sign in {links}</div><div id=wiki-body><div>{body}</div></div><div>Terms</div>"


async def test_of_a_wiki_only_the_articles_count(bench: Bench, hub: Site) -> None:
    hub.pages |= {
        "/o/r/wiki": wiki("<p>Home", "/One", "/_history", "/One/_history", "/_new"),
        "/o/r/wiki/One": wiki("<h1>One</h1>is here"),
        "/o/r/wiki/_history": wiki("history"),
    }
    texts = await bench.read(f"{hub.url}/o/r/wiki**")
    assert texts == {f"{hub.url}/o/r/wiki": "Home", f"{hub.url}/o/r/wiki/One": "# One\n\nis here"}
    assert set(hub.targets) == {"/robots.txt", "/o/r/wiki", "/o/r/wiki/One"}


async def test_a_wiki_that_looks_otherwise_is_taken_whole(bench: Bench, hub: Site) -> None:
    hub.pages["/o/r/wiki"] = "<main>An article</main>"
    assert await bench.read(f"{hub.url}/o/r/wiki**") == {f"{hub.url}/o/r/wiki": "An article"}


async def test_other_sites_are_crawled_as_ever(bench: Bench, hub: Site) -> None:
    bench.settings["github"] = GitHub()
    hub.pages["/o/r/tree/main/"] = wiki("mine")
    texts = await bench.read(f"{hub.url}/o/r/tree/main/**")
    assert "Sign in" in texts[f"{hub.url}/o/r/tree/main/"]
