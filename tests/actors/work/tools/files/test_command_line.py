"""Case 93: the arguments as the command line of a file with a parser of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tool_bench import Bench, flag, option, positional

from callboard.actors.work.tools.declare.declaration import Argument
from callboard.actors.work.tools.files.runner_protocol import to_arguments


@pytest.mark.parametrize(
    ("arguments", "given", "words"),
    [
        (
            [option("file-path"), flag("force"), flag("skip"), option("tags", multiple=True)],
            {"file_path": "a b", "force": True, "skip": False, "tags": ["x", "y"]},
            ["--file-path=a b", "--force", "--tags=x", "--tags=y"],
        ),
        (
            [],
            {"file_path": "a b", "force": True, "tags": ["x"], "n": 1},
            ["--file-path=a b", "--force", "--tags=x", "--n=1"],
        ),
        ([option("a")], {"a": ""}, ["--a="]),
        ([option("a")], {"a": None}, []),
        ([option("a")], {"a": "--b=$(x)\n'"}, ["--a=--b=$(x)\n'"]),
        ([option("n"), option("f")], {"n": 5, "f": 0.5}, ["--n=5", "--f=0.5"]),
        ([flag("verbose", multiple=True)], {"verbose": 3}, ["--verbose"] * 3),
        ([option("two", values=2)], {"two": ["src", "dest"]}, ["--two", "src", "dest"]),
        ([option("many", more=True, values=2)], {"many": ["a", "b", "c"]}, ["--many", "a", "b", "c"]),
        ([option("list", multiple=True, comma=",")], {"list": ["a", "b"]}, ["--list=a", "--list=b"]),
        ([Argument(name="o", kind="option", short="-o")], {"o": "x"}, ["-o", "x"]),
        ([Argument(name="b", kind="flag", short="-b", values=0)], {"b": True}, ["-b"]),
        ([positional("file"), option("a")], {"file": "f", "a": "1"}, ["--a=1", "f"]),
        ([positional("files", multiple=True)], {"files": ["-n", "x"]}, ["--", "-n", "x"]),
        ([option("a")], {"a": {"x": [1]}}, ['--a={"x":[1]}']),
    ],
)
def test_case_93_each_value_is_one_word(
    tmp_path: Path, arguments: list[Argument], given: dict[str, Any], words: list[str]
) -> None:
    bench = Bench(None, tmp_path)
    assert to_arguments(bench.declare(Path("tools.sh"), arguments=arguments), given) == words
