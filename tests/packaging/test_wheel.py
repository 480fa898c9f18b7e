"""What is installed: `callboard/` alone, all of it, and it works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.built_wheel import ROOT, TOP_LEVEL, sources

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(built)


def test_it_holds_callboard_alone(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"callboard"}
    entries = {name.split("/")[1] for name in wheel.namelist() if name.startswith("callboard/")}
    assert entries == {"__init__.py", "__main__.py", "py.typed", "examples", *TOP_LEVEL}
    # cli/commands/setup.py is a command, and no build script.
    of_tests_or_builds = r"(^|/)(tests?|conftest\.py)(/|$)|^(callboard/)?setup\.py$"
    assert not [name for name in wheel.namelist() if re.search(of_tests_or_builds, name)]


def test_it_holds_every_module_and_every_template(wheel: zipfile.ZipFile) -> None:
    modules = {path for path in sources() if path.suffix == ".py" and path.parts[0] in TOP_LEVEL}
    shipped = [("examples", "agents"), ("examples", "demo")]
    templates = {path for path in sources() if path.parts[:2] in shipped}
    wanted = {f"callboard/{path.as_posix()}" for path in modules | templates}
    assert wanted <= set(wheel.namelist())
    assert {name for name in wheel.namelist() if name.startswith("callboard/examples/")} <= wanted


def test_it_holds_every_file_of_the_page_and_nothing_else_beside_them(wheel: zipfile.ZipFile) -> None:
    folder = ("actors", "front", "page")
    files = {path for path in sources() if path.parts[:3] == folder and path.suffix in (".html", ".js", ".css", ".svg")}
    wanted = {f"callboard/{path.as_posix()}" for path in files}
    assert len(wanted) > 20
    held = {name for name in wheel.namelist() if name.startswith("callboard/actors/front/page/")}
    assert held == wanted | {"callboard/actors/front/page/__init__.py"}


def test_it_holds_the_prices_of_models_with_the_licence_of_those_who_collect_them(wheel: zipfile.ZipFile) -> None:
    folder = "callboard/actors/work/models/prices"
    names = set(wheel.namelist())
    assert {f"{folder}/table.json", f"{folder}/LICENSE"} <= names
    assert b"Pydantic Services Inc." in wheel.read(f"{folder}/LICENSE")
    of_all = [name for name in names if ".dist-info/" in name and name.endswith("prices/LICENSE")]
    assert len(of_all) == 1


def test_what_is_installed_works_without_the_source(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    site, home = tmp_path / "site", tmp_path / "home"
    home.mkdir()
    wheel.extractall(site)
    environment = {**os.environ, "PYTHONPATH": str(site), "HOME": str(home)}

    def callboard(*arguments: str) -> str:
        argv = [sys.executable, "-m", "callboard.cli", *arguments]
        ended = subprocess.run(argv, env=environment, cwd=home, capture_output=True, text=True, check=True)
        return ended.stdout

    assert callboard("--version").startswith("callboard 0.")
    callboard("init", "--template", "script")
    assert callboard("run", "./script", "one two", "--no-input") == "short: 2 words\n"
    probe = "import callboard; print(callboard.__file__)"
    shown = subprocess.run([sys.executable, "-c", probe], env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout.startswith(str(site))


def test_the_lock_pins_everything_exactly() -> None:
    lines = (ROOT / "requirements" / "dev.lock").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#") and not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
