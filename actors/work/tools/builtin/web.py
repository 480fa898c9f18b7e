"""Web tools: fetch_url_via_curl (the name is Loki's), and Wikipedia, arXiv, the weather, and a web search.

`get` downloads a web page as text, bounded in seconds and bytes; `io.http.guarded` decides which addresses are allowed.
Private addresses are allowed, since a developer's own servers use them.

The services need no API keys. An environment variable can replace the address of each, for a mirror, a proxy, or tests.
A service that is down or refuses the request results in one clear sentence for the model, which can continue without
it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import msgspec
import trio

from .....protocol.errors import ToolFailed
from .....protocol.kernel.text_cuts import head_of
from ....io.encodings import declared_inside, decoded
from ....io.html import PageReader, attributes_of, scan
from ....io.http import guarded
from ....io.secret_redaction import hidden, hidden_head
from ..tool import Arguments, Json
from .allowed_paths import Setting, in_thread

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from .....supervisors import Actor

SECONDS = 30.0
"""Time limit for one page, including redirects."""

LARGEST = 4 * 1024 * 1024
"""Maximum bytes read of a page."""

NEARBY = 64 * 1024
"""Bytes before the limit in which the cut looks for the end of a line."""

SHOWN = 500

_TEXTS = ("text/", "application/json", "application/xml", "application/xhtml", "application/javascript")


class FetchedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A downloaded page.

    Attributes:
        url: the final URL after redirects.
        kind: its content type, without parameters.
        text: its decoded text.
        cut: True if the page was longer than the limit.
    """

    url: str
    kind: str
    text: str
    cut: bool


async def get(
    url: str,
    environ: Mapping[str, str],
    *,
    params: Mapping[str, str] | None = None,
    accept: str = "*/*",
    within: float = SECONDS,
) -> FetchedPage:
    """Download a page as text.

    Raises:
        ToolFailed: the page cannot be downloaded, is forbidden, is an error response, or is not text.
    """
    try:
        target = httpx.URL(url, params=params) if params else httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError, TypeError) as error:
        raise ToolFailed(f"{url[:200]!r} is no URL: {error}") from error
    headers = {**guarded.HEADERS, "Accept": accept}
    page = None
    # One limit for the whole chain of redirects: the client's own time limits apply to single operations.
    with trio.move_on_after(within):
        async with guarded.client(environ, allow_private=True, seconds=within) as client:

            async def once(target: httpx.URL) -> FetchedPage | httpx.URL:
                async with client.stream("GET", target, headers=headers) as response:
                    return guarded.redirected(response, target) or await _page(response, target)

            try:
                page = await guarded.followed(target, once)
            except guarded.CantFetch as error:
                raise ToolFailed(str(error)) from error
    if page is None:
        raise ToolFailed(f"{target.host} did not answer within {within:g} s")
    return page


async def _page(response: httpx.Response, url: httpx.URL) -> FetchedPage:
    body = await guarded.body_of(response, LARGEST)
    cut = len(body) > LARGEST
    kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
    if response.status_code >= 400 or response.status_code == 304:
        words = f"{response.status_code} {response.reason_phrase}".strip()
        shown = hidden_head(body.decode(errors="replace"), SHOWN) if _is_text(kind, body) else ""
        raise ToolFailed(f"{guarded.short(url)} answered {words}", stderr=shown)
    if not _is_text(kind, body):
        raise ToolFailed(f"{guarded.short(url)} is {kind or 'binary data'}, not text")
    if cut:  # Cut at a line end if one is near: half a character would make the whole page look like another encoding.
        end = body.rfind(b"\n", LARGEST - NEARBY, LARGEST)
        body = body[: end if end > 0 else LARGEST]
    text = await in_thread(lambda: decoded(body, response.charset_encoding or declared_inside(body)))
    return FetchedPage(url=str(url), kind=kind, text=text, cut=cut)


def _is_text(kind: str, body: bytes) -> bool:
    named = kind.startswith(_TEXTS) or kind.endswith(("+json", "+xml"))
    # A page without a useful type counts as text unless a NUL proves the opposite.
    return named or (kind in ("", "application/octet-stream") and b"\0" not in body[:8192])


RESULT = 128 * 1024
"""Maximum characters of a page in the result."""

CONVERTING = 10.0
"""Seconds for the conversion of HTML. Of a page that takes longer, the part converted by then is returned."""


async def fetch_url_via_curl(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Return a page's text: HTML converted to readable text, anything else unchanged."""
    url = arguments["url"].strip()
    if "://" not in url:
        # Models often omit the scheme.
        url = "https://" + url
    page = await get(
        url, setting.environ, accept="text/html, text/*;q=0.9, */*;q=0.8", within=min(SECONDS, setting.timeout)
    )
    text, cut = page.text, page.cut
    if "html" in page.kind or text[:200].lstrip().lower().startswith(("<!doctype html", "<html")):
        text, whole = await in_thread(lambda: _converted(page.text, page.url))
        cut = cut or not whole
    # Redact before the cut below: a secret that is cut in half would not be recognised.
    text = hidden(text)
    if len(text) > RESULT:
        return f"{head_of(text, RESULT)}\n[cut: {len(text) - RESULT} more characters]"
    if cut:
        return f"{text}\n[cut: the page is longer]"
    return text or "(the page has no text)"


def _converted(html: str, url: str) -> tuple[str, bool]:
    reader = PageReader(url, shows_links=True)
    until = time.monotonic() + CONVERTING

    def check() -> None:
        trio.from_thread.check_cancelled()
        if time.monotonic() > until:
            raise TimeoutError

    whole = True
    try:
        reader.read(html, check)
    except TimeoutError:
        whole = False
    page = reader.page()
    return f"# {page.title}\n\n{page.text}".strip() if page.title else page.text, whole


# --- services without API keys


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
    """Return one line of weather in metric units; a note if the service returns nothing for the place.

    Raises:
        ToolFailed: the location is empty, or the service can't be reached.
    """
    place = arguments["location"].strip()
    if not place:
        raise ToolFailed("the location is empty")
    base = _address(setting, "CALLBOARD_WEATHER_URL").rstrip("/")
    page = await _asked(setting, "the weather service", f"{base}/{quote(place, safe='')}", {"format": "4", "m": ""})
    return page.text.strip() or f"(the weather service does not know {place})"


async def search_wikipedia(_me: Actor, setting: Setting, arguments: Arguments) -> Json:
    """Return the best articles: title, url, and the beginning of their text; a note if there are none.

    Raises:
        ToolFailed: the service can't be reached, or its response can't be parsed.
    """
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
        raise ToolFailed("Wikipedia's response can't be parsed") from error
    return articles or "(nothing found)"


async def search_arxiv(_me: Actor, setting: Setting, arguments: Arguments) -> Json:
    """Return the best papers: title, authors, date, URL and abstract; a note if there are none.

    Raises:
        ToolFailed: the service can't be reached, or its response can't be parsed.
    """
    asked = {
        "search_query": f"all:{arguments['query']}",
        "max_results": str(PAPERS),
        "sortBy": "relevance",
    }
    page = await _asked(setting, "arXiv", _address(setting, "CALLBOARD_ARXIV_URL"), asked)
    return await in_thread(lambda: _papers(page.text)) or "(nothing found)"


async def web_search_loki(_me: Actor, setting: Setting, arguments: Arguments) -> Json:
    """Return the best pages, from DuckDuckGo's page for browsers without JavaScript; a note if there are none.

    Raises:
        ToolFailed: the query is empty, or the service can't be reached or asks for a CAPTCHA.
    """
    query = arguments["query"].strip()
    if not query:
        raise ToolFailed("the query is empty")
    page = await _asked(setting, "the web search", _address(setting, "CALLBOARD_WEB_SEARCH_URL"), {"q": query})
    results = await in_thread(lambda: _results(page.text))
    # A page with neither results nor this notice is a check for bots.
    if not results and "no-results" not in page.text and "No results" not in page.text:
        raise ToolFailed("the web search can't be used: the search service requires a human in a browser (CAPTCHA)")
    return results or "(nothing found)"


def _address(setting: Setting, variable: str) -> str:
    return setting.environ.get(variable) or ADDRESSES[variable]


async def _asked(setting: Setting, who: str, url: str, params: Mapping[str, str]) -> FetchedPage:
    try:
        return await get(url, setting.environ, params=params, within=min(SECONDS, setting.timeout))
    except ToolFailed as error:
        # Name the service instead of its host; the reason is the same.
        why = str(error).rpartition(" can't be reached: ")[2]
        raise ToolFailed(f"{who} can't be reached: {why}", stderr=error.stderr) from error


def _papers(text: str) -> list[dict[str, Json]]:
    from xml.etree import ElementTree as ET

    try:
        # Expat itself bounds the growth of entities, and the text is bounded too.
        feed = ET.fromstring(text)  # noqa: S314 - see above
    except ET.ParseError as error:
        raise ToolFailed("arXiv's response can't be parsed") from error
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
