"""HTML to Markdown that shows where its links lead."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cpu_time import slowness

from callboard.actors.io.html import PageReader


def readable(html: str, url: str) -> str:
    reader = PageReader(url, shows_links=True)
    reader.read(html, lambda: None)
    return reader.page().text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>one</p><p>two</p>", "one\n\ntwo"),
        ("<div>one<div>two</div>three</div>", "one\ntwo\nthree"),
        ("a  \n b<br>c<br/>d", "a b\nc\nd"),
        ("<h1>Head</h1>text<h3>Sub</h3>", "# Head\n\ntext\n\n### Sub"),
        ("<ul><li>one<li>two</ul>", "- one\n- two"),
        ("<ul>\n <li><p>one</p><li></li><li>two</li>\n</ul><p>x</p>", "- one\n- two\n\nx"),
        ("<p>some <b>bold</b>, <i>slanted</i> words</p>", "some bold, slanted words"),
        ("<pre>  def f():\n      return 1\n</pre>", "```\n  def f():\n      return 1\n\n```"),
        ("<table><tr><th>a<th>b</tr><tr><td>1</td><td>2</td></tr></table>", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
        ("x<script>var a = '<p>no</p>'</script>y<style>p {}</style>z", "xyz"),
        ("<noscript>no <p>js</p></noscript>yes", "yes"),
        ("<svg><title>no</title></svg>yes", "yes"),
        ("a &amp; b &lt;c&gt; &#8364; &nbsp; d", "a & b <c> € d"),
        ('see <a href="/x">the page</a>.', "see [the page](http://h/x)."),
        ('<a href="#top">up</a> <a href="javascript:x()">js</a> <a>none</a>', "up js none"),
        ('<a href="x"><img alt="a cat"></a>', "[[image: a cat]](http://h/x)"),
        ("<title>T</title><body>b", "b"),
        ("<nav><a href=/x>up</a></nav>x<footer>end</footer>", "[up](http://h/x)\nx\nend"),
        ("<a href=/x> one </a>two<a href=/x>three<a href=/x>four", "[one](http://h/x) two[three](http://h/x)four"),
        ("<a href=/x>a<p>b</a>", "a\n\n[b](http://h/x)"),
        ("<table><tr><td>a<td>b<tr><td>c</table>d<ul><li></ul>e", "| a | b |\n| --- | --- |\n| c |\n\nd\n\ne"),
        ("<table><tr><td>a<table><tr><td>b</table>c", "| a |\n| --- |\n| b |\n\nc"),
        ("<!-- no --><!doctype html>yes", "yes"),
        ("<p>unclosed <b>all <i>the way", "unclosed all the way"),
        ("</div></p></a></script>yes", "yes"),
        ("", ""),
    ],
)
def test_html_is_read_as_a_person_would(html: str, text: str) -> None:
    assert readable(html, "http://h/d/").replace("/d/x", "/x") == text


_piece = st.sampled_from(
    [
        *("<p>", "</p>", "<a href='x'>", "<a href='http://[x'>", "</a>", "<pre>", "</pre>", "<script>", "</script>"),
        *("<li>", "<svg>", "</svg>", "<svg/>", "<td>", "<h1>", "</h1>", "<br/>", "<!-- c -->"),
        *("&lt;", "a", " ", "\n", "é", "<", ">", "<!--", "-->", "</"),
    ]
)


@given(st.lists(_piece, max_size=30).map("".join))
def test_no_html_crashes_it(html: str) -> None:
    whole = readable(html, "http://h/")
    assert "\n\n\n" not in whole or "<pre>" in html


@pytest.mark.parametrize("piece", ["<a ", "<![", "<!--", "<a href='", "</", "<p", "<svg>", "&#"])
def test_what_somebody_made_to_keep_a_parser_busy_takes_no_longer_than_other_pages(piece: str) -> None:
    html = "<p>before</p>" + piece * 20_000
    began = time.process_time()
    assert readable(html, "http://h/").startswith("before")
    assert time.process_time() - began < 5 * slowness()  # a parser that goes back again and again takes minutes


def test_who_looks_may_end_it_and_what_was_read_stays() -> None:
    def look() -> None:
        raise TimeoutError

    reader = PageReader("http://h/")
    with pytest.raises(TimeoutError):
        reader.read("<p>one</p>" * 2_000, look)
    assert reader.page().text.startswith("one\n\none")


@pytest.mark.parametrize(
    "piece", ["<a href=x>x", "<a href=x><p>x", "<table><tr><td><a href=x>x", "<li><a href=x>x</a>"]
)
@pytest.mark.sample(1)
def test_links_that_never_end_take_no_longer_than_others(piece: str) -> None:
    began = time.process_time()
    assert "x" in readable(piece * 50_000, "http://h/")
    assert time.process_time() - began < 10 * slowness()
