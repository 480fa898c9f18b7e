"""HTML as documents: text, links and wishes of a page; nothing is executed, and no page keeps the reader busy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.messages import says

from callboard.actors.work.knowledge.reading.limits import Bounds, CantRead

if TYPE_CHECKING:
    from .conftest import Reader

PAGE = b"""<!doctype html><html><head><title>A &amp; B</title><script>document.write("<a href='/evil'>x</a>")</script>
<style>p { color: red }</style><base href="/docs/"></head><body>
<nav><a href="one.html">One</a> menu</nav>
<h1>Head <em>line</em></h1><p onclick="alert(1)">Some <b>bold</b> text
 over lines<br>and a <a href="two.html#f">link</a>, <a rel="nofollow" href="three.html">not this</a>.</p>
<ul><li>a<ul><li>b</li></ul></li><li><p>c</p></li></ul><ol><li>x</li><li>y</li></ol>
<pre><code>def f():
    return 1</code></pre>
<table><tr><th>k</th><th>v</th></tr><tr><td>a|b</td><td><p>1</p></td></tr></table>
<p># no heading</p><img src="i.png" alt="a cat"><svg><title>no</title></svg><iframe src="//evil/">no</iframe>
<footer>imprint <a href="mailto:x@y">mail</a> <a href="javascript:alert(1)">js</a></footer></body></html>"""

TEXT = """# Head line

Some bold text over lines
and a link, not this.

- a
  - b
- c

1. x
2. y

```
def f():
    return 1
```

| k | v |
| --- | --- |
| a\\|b | 1 |

\\# no heading

[image: a cat]"""


async def test_a_page_becomes_markdown_without_scripts(reader: Reader) -> None:
    contents = await reader(PAGE, "http://h/a/", media="text/html")
    (document,) = contents.documents
    assert (document.title, document.kind, document.text) == ("A & B", "markdown", TEXT)
    assert contents.links == ("http://h/docs/one.html", "http://h/docs/two.html")


async def test_a_page_says_whether_it_wants_to_be_found_and_followed(reader: Reader) -> None:
    page = b"<meta name=robots content='%b'><a href=/x>x</a>"
    nofollow = await reader(page % b"NOFOLLOW", "http://h/", media="text/html")
    assert (len(nofollow.documents), nofollow.links) == (1, ())
    noindex = await reader(page % b"noindex", "http://h/", media="text/html")
    assert (nofollow.kept_out, noindex.kept_out, noindex.links) == (False, True, ("http://h/x",))


async def test_a_page_says_its_own_encoding(reader: Reader) -> None:
    page = "<meta charset=windows-1251><p>привет</p>".encode("cp1251")
    assert (await reader.one(page, "a.html")).text == "привет"


async def test_html_is_known_by_its_beginning(reader: Reader) -> None:
    assert (await reader.one(b"\n<!DOCTYPE html><p>x", "page")).text == "x"


async def test_elements_nested_without_end_keep_nobody_busy(reader: Reader) -> None:
    assert (await reader.one(b"<div>" * 100_000 + b"deep", "a.html")).text == "deep"


HOSTILE = (
    *(
        "<a ",
        "<!--",
        "<!",
        "<![",
        "</",
        "<a b='",
        '<a b="x',
        "<a '\"",
        "&",
        "&#",
        "<?",
        "<script>",
        "<script></",
        "<x/",
    ),
    *("<svg>", "<title>", "<select>", "<table><td>", "<ul><li>", "<b><i>", "</p>", "<p>" + " " * 99),
)


async def test_no_page_keeps_us_busy(reader: Reader) -> None:
    """The parser of Python's library takes minutes for the first of them."""
    reader.bounds = Bounds(seconds=60)
    for piece in HOSTILE:
        await reader((piece * 10_000).encode(), "a.html")


async def test_a_number_of_a_thousand_digits_is_no_letter(reader: Reader) -> None:
    assert "x" in (await reader.one(b"<p>&#" + b"9" * 5000 + b"; x", "a.html")).text


async def test_a_page_that_unfolds_to_too_much_is_refused(reader: Reader) -> None:
    reader.bounds = Bounds(text=1000)
    table = b"<table>" + b"<tr><td>" * 50 + b"</table>"
    assert (await reader.one(table, "a.html")).text == ""
    with pytest.raises(CantRead, match=says("work.knowledge.reading.read.check_size")):
        await reader(b"<p>" + b"x" * 1000, "a.html")


async def test_a_page_that_takes_too_long_is_given_up(reader: Reader) -> None:
    reader.bounds = Bounds(seconds=0.0)
    with pytest.raises(CantRead, match=says("work.knowledge.reading.limits.watch.check", seconds=0)):
        await reader(b"<p>x</p>" * 2000, "a.html")


MANY = 100_000
NAMES = " ".join(f"a{number}=1" for number in range(MANY))
HEAVY = {
    "attributes of a tag": f"<p {NAMES}>x</p>y",
    "attributes of a closing tag": f"<p>x</p {NAMES}>y",
    "attributes with tags in quotes": "<p " + " ".join(f"a{number}='>'" for number in range(MANY)) + ">x</p>y",
    "attributes of a tag that never ends": f"<p>x</p>y<p {NAMES}",
    "names of attributes": "".join(f"<a a{number}=1>x</a>y" for number in range(MANY)),
    "names of tags": "".join(f"<x{number}>x</x{number}>y" for number in range(MANY)),
    "formatting without end": "".join(f"<b a={number}><p>x" for number in range(MANY)) + "y",
    "formatting that ends in a comment": "".join(f"<b a={number}><p>x<!--></b>--></b>" for number in range(MANY)) + "y",
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("shape", HEAVY)
async def test_a_page_takes_time_as_it_is_long_whatever_its_shape(reader: Reader, shape: str) -> None:
    reader.bounds = Bounds(seconds=60)
    text = (await reader.one(HEAVY[shape].encode(), "a.html")).text
    assert "x" in text
    assert "y" in text
