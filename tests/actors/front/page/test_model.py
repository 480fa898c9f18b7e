"""What the page knows and how it follows a run, tested with node; and what must never be in its files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from callboard.actors.front.page import HEADERS, asset
from callboard.actors.views.run_view import RunView
from callboard.protocol.events import decode

PAGE = Path(__file__).parents[4] / "actors" / "front" / "page"
SOURCES = sorted(path for path in PAGE.rglob("*") if path.suffix in (".js", ".html", ".css", ".svg"))
SCRIPTS = [path for path in SOURCES if path.suffix == ".js"]


def test_what_the_page_knows_of_a_run_holds(tmp_path: Path) -> None:
    if (node := shutil.which("node")) is None:
        pytest.skip("no node on this machine: install nodejs to have the page's model tested")
    shutil.copytree(PAGE, tmp_path / "page", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    tests = [shutil.copy(path, tmp_path) for path in sorted(Path(__file__).parent.glob("*.test.mjs"))]
    (tmp_path / "package.json").write_text('{"type": "module"}')
    ended = subprocess.run(
        [node, "--test", *map(str, tests)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert int(re.findall(r"(?:#|ℹ) pass (\d+)", ended.stdout)[0]) >= 40


AGREED = """
import { readFileSync } from "node:fs";
import { RunState } from "./page/model/run.js";

for (const path of process.argv.slice(2)) {
  const state = new RunState("run-00000001");
  for (const line of readFileSync(path, "utf8").trim().split("\\n")) {
    state.apply(JSON.parse(line));
    const nodes = Object.fromEntries(
      [...state.graph.nodes].map(([id, node]) => [id, [node.visits, node.running, node.state, node.error]]),
    );
    const { input_tokens, output_tokens, cost } = state.used;
    const open = state.open.map((entry) => entry.question.id);
    console.log(JSON.stringify([state.standing, nodes, open, [input_tokens, output_tokens, cost], state.warnings]));
  }
}
"""


def test_the_page_and_the_run_view_say_the_same_after_each_event(tmp_path: Path) -> None:
    if (node := shutil.which("node")) is None:
        pytest.skip("no node on this machine: install nodejs to have the page's model compared")
    shutil.copytree(PAGE, tmp_path / "page", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "agreed.mjs").write_text(AGREED)
    paths = sorted((Path(__file__).parents[2] / "views" / "recorded").glob("*.jsonl"))
    ended = subprocess.run(
        [node, "agreed.mjs", *map(str, paths)], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=100
    )
    said = iter(ended.stdout.splitlines())
    for path in paths:
        view = RunView()
        for line in path.read_bytes().splitlines():
            event = decode(line)
            assert event is not None
            view.see(event)
            status, nodes, questions, usage, warned = json.loads(next(said))
            where = f"{path.stem} after {event.seq} ({event.kind})"
            assert view.status == status, where
            assert list(view.questions) == questions, where
            assert [view.input_tokens, view.output_tokens, view.cost] == pytest.approx(usage), where
            assert view.warned == warned, where
            if not view.is_agent:  # of a plain agent the page draws the agent as a node
                mine = {id: [each.visits, each.running, each.state, each.error] for id, each in view.nodes.items()}
                assert mine == nodes, where
    assert next(said, None) is None


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
