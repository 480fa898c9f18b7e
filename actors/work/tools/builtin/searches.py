"""Web services without API keys: Wikipedia, arXiv, the weather, and a web search.

An environment variable can replace the address of each service, for a mirror, a proxy, or tests. A service that is down
or refuses the request results in one clear sentence for the model, which can continue without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit

import msgspec

from .....protocol.errors import ToolFailed
from ....io.html.tags import attributes_of, scan
from ..tool import Arguments, Json
from .allowed_paths import Setting, in_thread
from .fetching import SECONDS, FetchedPage, get

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from .....supervisors import Actor

ADDRESSES: Mapping[str, str] = {
    "CALLBOARD_WEATHER_URL": "https://wttr.in",
    "CALLBOARD_WIKIPEDIA_URL": "https://en.wikipedia.org/w/api.php",
    "CALLBOARD_ARXIV_URL": "https://export.arxiv.org/api/query",
    "CALLBOARD_WEB_SEARCH_URL": "https://html.duckduckgo.com/html/",
}
"""Environment variables of the service addresses, with their defaults."""

ARTICLES = 3
PAPERS = 3
PAGES = 8
EXTRACT = 4000
"""Maximum characters of an article's beginning or a paper's abstract."""

_ATOM = "{http://www.w3.org/2005/Atom}"


async def get_current_weather(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Return one line of weather, metric."""
    place = arguments["location"].strip()
    if not place:
        raise ToolFailed("the location is empty")
    base = _address(setting, "CALLBOARD_WEATHER_URL").rstrip("/")
    page = await _asked(setting, "the weather service", f"{base}/{quote(place, safe='')}", {"format": "4", "m": ""})
    return page.text.strip() or f"(no weather is known for {place})"


async def search_wikipedia(_me: Actor, setting: Setting, arguments: Arguments) -> Json:
    """Return the best articles: title, url, and the beginning of their text."""
    asked = {
        "action": "query",
        "format": "json",
        "formatversion": "2",
        "generator": "search",
        "gsrsearch": arguments["query"],
        "gsrlimit": str(ARTICLES),
        "prop": "extracts|info",
        "inprop": "url",
        "exintro": "1",
        "explaintext": "1",
        "exlimit": "max",
    }
    page = await _asked(setting, "Wikipedia", _address(setting, "CALLBOARD_WIKIPEDIA_URL"), asked)
    try:
        answer = msgspec.json.decode(page.text)
        found = sorted(answer.get("query", {}).get("pages", ()), key=lambda one: one.get("index", 0))
        articles = [
            {"title": one["title"], "url": one.get("fullurl", ""), "text": one.get("extract", "")[:EXTRACT]}
            for one in found
        ]
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError) as error:
        raise ToolFailed("Wikipedia's answer can't be read") from error
    return articles or "(nothing found)"


async def search_arxiv(_me: Actor, setting: Setting, arguments: Arguments) -> Json:
    """Return the best papers."""
    asked = {
        "search_query": f"all:{arguments['query']}",
        "max_results": str(PAPERS),
        "sortBy": "relevance",
    }
    page = await _asked(setting, "arXiv", _address(setting, "CALLBOARD_ARXIV_URL"), asked)
    return await in_thread(lambda: _papers(page.text)) or "(nothing found)"


async def web_search_loki(_me: Actor, setting: Setting, arguments: Arguments) -> Json:
    """Return the best pages, from DuckDuckGo's page for browsers without JavaScript."""
    query = arguments["query"].strip()
    if not query:
        raise ToolFailed("the query is empty")
    page = await _asked(setting, "the web search", _address(setting, "CALLBOARD_WEB_SEARCH_URL"), {"q": query})
    results = await in_thread(lambda: _results(page.text))
    # A page with neither results nor this notice is a check for bots.
    if not results and "no-results" not in page.text and "No results" not in page.text:
        raise ToolFailed("the web search is not reachable: it wants to see a person in a browser first")
    return results or "(nothing found)"


def _address(setting: Setting, variable: str) -> str:
    return setting.environ.get(variable) or ADDRESSES[variable]


async def _asked(setting: Setting, who: str, url: str, params: Mapping[str, str]) -> FetchedPage:
    try:
        return await get(url, setting.environ, params=params, within=min(SECONDS, setting.timeout))
    except ToolFailed as error:
        # Name the service instead of its host; the reason is the same.
        why = str(error).rpartition(" is not reachable: ")[2]
        raise ToolFailed(f"{who} is not reachable: {why}", stderr=error.stderr) from error


def _papers(text: str) -> list[dict[str, Json]]:
    from xml.etree import ElementTree as ET

    try:
        # Expat itself bounds the growth of entities, and the text is bounded too.
        feed = ET.fromstring(text)  # noqa: S314 - see above
    except ET.ParseError as error:
        raise ToolFailed("arXiv's answer can't be read") from error
    return [
        {
            "title": _of(entry, "title"),
            "authors": [_of(author, "name") for author in entry.findall(f"{_ATOM}author")],
            "published": _of(entry, "published")[:10],
            "url": _of(entry, "id"),
            "summary": _of(entry, "summary")[:EXTRACT],
        }
        for entry in feed.findall(f"{_ATOM}entry")
    ]


def _of(entry: Element, name: str) -> str:
    return " ".join((entry.findtext(f"{_ATOM}{name}") or "").split())


def _results(html: str) -> list[dict[str, str]]:
    reader = _Results()
    scan(html, reader, lambda: None)
    return [result for result in reader.results if result["url"]][:PAGES]


class _Results:
    """Tag handler that collects links of the class `result__a` and texts of the class `result__snippet`."""

    def __init__(self) -> None:
        self.results: list[dict[str, str]] = []
        self._field = ""
        self._tag = ""

    def begins(self, tag: str, attributes: str) -> None:
        given = attributes_of(attributes)
        classes = given.get("class", "").split()
        if "result__a" in classes:
            self.results.append({"title": "", "url": _unwrapped(given.get("href", "")), "text": ""})
            self._field, self._tag = "title", tag
        elif "result__snippet" in classes and self.results:
            self._field, self._tag = "text", tag

    def ends(self, tag: str) -> None:
        if tag == self._tag:
            self._field = ""

    def says(self, data: str) -> None:
        if self._field:
            result = self.results[-1]
            result[self._field] = " ".join((result[self._field] + data).split(" ")).replace("\n", " ").lstrip()


def _unwrapped(href: str) -> str:
    """Return the address of a result; "" for an advertisement.

    Results link to a redirect with the address in the parameter `uddg`.
    """
    # The page's links omit the scheme.
    if href.startswith("//"):
        href = "https:" + href
    try:
        parts = urlsplit(href)
        if parts.path == "/l/":
            return parse_qs(parts.query).get("uddg", [""])[0]
    except ValueError:
        return ""
    return href if parts.scheme in ("http", "https") and not parts.path.startswith("/y.js") else ""
