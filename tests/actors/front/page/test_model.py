"""What the page knows and how it follows a run, tested with node; and what must never be in its files."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from callboard.actors.front.page import HEADERS, asset

PAGE = Path(__file__).parents[4] / "actors" / "front" / "page"
SOURCES = sorted(path for path in PAGE.rglob("*") if path.suffix in (".js", ".html", ".css", ".svg"))
SCRIPTS = [path for path in SOURCES if path.suffix == ".js"]


def test_what_the_page_knows_of_a_run_holds(tmp_path: Path) -> None:
    if (node := shutil.which("node")) is None:
        pytest.skip("no node on this machine: install nodejs to have the page's model tested")
    shutil.copytree(PAGE, tmp_path / "page", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    shutil.copy(Path(__file__).with_name("model.test.mjs"), tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    ended = subprocess.run(
        [node, "--test", "model.test.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert int(re.findall(r"(?:#|ℹ) pass (\d+)", ended.stdout)[0]) >= 15


FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|\beval\b|new Function"
    r"|srcdoc|setAttribute\(\"style|style:\s*[\"`]|javascript:|@import|url\((?!#)"
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_text_only_ever_becomes_text_and_nothing_comes_from_elsewhere(path: Path) -> None:
    text = path.read_text()
    assert FORBIDDEN.findall(text) == []
    assert set(re.findall(r"(?:https?|wss?)://[^\s\"'`]+", text)) <= {"http://www.w3.org/2000/svg"}
    if path.suffix == ".html":
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text)


def test_every_file_that_is_named_is_there_and_none_is_left_over() -> None:
    named = {"/"} | {f"/{name}" for name in re.findall(r'(?:href|src)="(ui/[^"]+)"', (PAGE / "index.html").read_text())}
    for path in SCRIPTS:
        for name in re.findall(r'from "(\.[^"]+)"', path.read_text()):
            named.add(f"/ui/{(path.parent / name).resolve().relative_to(PAGE.resolve()).as_posix()}")
    missing = {name for name in named if asset(name) is None}
    assert missing == set()
    served = {f"/ui/{path.relative_to(PAGE).as_posix()}" for path in SOURCES} - {"/ui/index.html"}
    assert served == named - {"/"}


@pytest.mark.parametrize(
    "path",
    ["", "//", "/ui", "/ui/", "/ui/../__init__.py", "/ui/__init__.py", "/ui/%2e%2e/x", "/ui//main.js", "/main.js"],
)
def test_only_the_names_of_the_page_are_files_of_it(path: str) -> None:
    assert asset(path) is None


def test_it_may_load_nothing_but_its_own_files() -> None:
    policy = dict(part.strip().split(" ", 1) for part in HEADERS["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert policy["img-src"] == "'self' data:"
    assert {policy[name] for name in ("base-uri", "form-action", "frame-ancestors")} == {"'none'"}
    assert asset("/ui/main.js") is not None


def test_every_colour_stands_once_light_and_dark_side_by_side() -> None:
    text = (PAGE / "colours.css").read_text()
    names = re.findall(r"^ *--([\w-]+):", text, re.MULTILINE)
    assert len(names) == len(set(names)) >= 20
    assert not re.findall(r"^ *--(?:\w+-?)+: #", text, re.MULTILINE)
    for path in SOURCES:
        if path.suffix == ".css" and path.name != "colours.css":
            assert re.findall(r"#[0-9a-f]{3,6}\b", path.read_text()) == [], path.name
