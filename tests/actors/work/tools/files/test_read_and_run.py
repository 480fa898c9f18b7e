"""From a file to a result: what `declare` reads of the documented examples is what `files` can call."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.tool_bench import Bench, needs_typescript

from callboard.actors.work.tools.declare.read import read_tools
from callboard.protocol.errors import ToolFailed

FIXTURES = Path(__file__).parents[4] / "fixtures" / "tools"

SHOW = """
main() {
    local name
    for name in ${!argc_*}; do
        [[ $name == argc__* ]] || declare -p "$name" >> "$LLM_OUTPUT"
    done
    printf '[%s]' "$@" >> "$LLM_OUTPUT"
}
"""


async def call(bench: Bench, path: Path, function: str, _more: str = "", **arguments: Any) -> Any:
    """Read the file, and call the function in a copy that has something added."""
    file = bench.write(path.name, path.read_text() + _more)
    read = read_tools(path, agent=function not in ("main", "run"))
    assert [problem for problem in read.problems if problem.severity == "error"] == []
    (declaration,) = [one for one in read.declarations if one.function == function]
    return await bench.call(msgspec.structs.replace(declaration, file=file), arguments)


async def variables(bench: Bench, name: str, **arguments: Any) -> tuple[dict[str, str], list[str]]:
    """The `argc_` variables and the positional arguments of a bash tool that is called like this."""
    said = (await call(bench, FIXTURES / "bash" / name, "main", SHOW, **arguments))["output"]
    found = dict(re.findall(r"^declare -\S+ argc_(\w+)=(.*)$", said, re.MULTILINE))
    return found, re.findall(r"\[(.*?)\]", said.splitlines()[-1])


async def test_the_documented_options(bench: Bench) -> None:
    found, _ = await variables(
        bench,
        "options_doc.sh",
        required="r",
        required_multi=["a", "b c"],
        required_choice_multi=["odd", "even"],
        two_args=["src", "dest"],
        multi_comma=["x", "y"],
        o="short",
        capture=["--rest", ""],
        choice_fn="odd",
        choice_fn_no_valid="strange",
    )
    assert found == {
        "required": '"r"',
        "required_multi": '([0]="a" [1]="b c")',
        "required_choice_multi": '([0]="odd" [1]="even")',
        "two_args": '([0]="src" [1]="dest")',
        "multi_comma": '([0]="x" [1]="y")',
        "o": '"short"',
        "capture": '([0]="--rest" [1]="")',
        "choice_fn": '"odd"',
        "choice_fn_no_valid": '"strange"',
        "default": '"default"',
        "default_from_fn": '"the default"',
        "choice_default": '"even"',
    }


async def test_the_documented_positionals(bench: Bench) -> None:
    found, given = await variables(
        bench,
        "arguments_doc.sh",
        required="something",
        multi_value_required=["one", "two"],
        required_choice=["odd"],
        multi_choice_comma_fn=["even", "odd"],
    )
    assert found == {
        "required": '"something"',
        "multi_value_required": '([0]="one" [1]="two")',
        "default": '"default"',
        "default_from_fn": '"the default"',
        "required_choice": '([0]="odd")',
        "default_choice": '"even"',
        "multi_choice_comma_fn": '([0]="even" [1]="odd")',
    }
    assert [word for word in given if word] == [
        "something", "one", "two", "default", "the default", "odd", "even", "even", "odd",
    ]  # fmt: skip


async def test_the_documented_flags(bench: Bench) -> None:
    found, _ = await variables(bench, "flags_doc.sh", bool=True, verbose=False, b=True, multi=2)
    assert found == {"bool": '"1"', "b": '"1"', "multi": '"2"'}


async def test_the_documented_environment(bench: Bench) -> None:
    path = FIXTURES / "bash" / "environment_doc.sh"
    show = 'main() { printf "%s|" "$DEFAULT_VALUE" "$DEFAULT_FROM_FN" "$CHOICE_WITH_DEFAULT" >> "$LLM_OUTPUT"; }\n'
    for program in ("jq", "yq"):
        (bench.home.config_dir / "functions" / "bin").mkdir(parents=True, exist_ok=True)
        stand_in = bench.home.config_dir / "functions" / "bin" / program
        stand_in.write_text("#!/bin/sh\n")
        stand_in.chmod(0o755)
    with pytest.raises(ToolFailed) as failed:
        await call(bench, path, "main", show)
    assert "'REQUIRED' is required" in failed.value.stderr
    bench.home = bench.at_home(environ={**bench.home.environ, "REQUIRED": "here"})
    assert await call(bench, path, "main", show) == {"output": "default|the default|even|"}


async def test_a_built_file_and_one_of_aichats_times(bench: Bench) -> None:
    path = FIXTURES / "bash" / "built.sh"
    show = """\n_argc_run() { printf '[%s]' "$@" >> "$LLM_OUTPUT"; }\n_argc_run "$@"\n"""
    said = await call(bench, path, "main", show, file_path="a b", force=True, tags=["x", "y"])
    assert "[--file-path=a b][--force][--tags=x][--tags=y]" in said["output"]
    jira = bench.write("config/functions/bin/jira", "#!/bin/sh\nprintf '%s,' \"$@\"\n")
    jira.chmod(0o755)
    said = await call(bench, FIXTURES / "bash" / "argc_eval.sh", "main", jql_query="a = 'b'")
    assert said == {"output": "issue,ls,-q,a = 'b',--plain,"}


async def test_the_documented_python_tool(bench: Bench) -> None:
    said = await call(
        bench,
        FIXTURES / "python" / "demo_py.py",
        "run",
        string="s", string_enum="foo", boolean=False, integer=7, number=0.5, array=["a", "b"],
    )  # fmt: skip
    assert "LLM_TOOL_NAME: demo_py\n" in said["output"]


async def test_nested_dataclasses_are_built_from_what_the_schema_allows(bench: Bench) -> None:
    file = bench.write("draw.py", DRAW)
    (declaration,) = read_tools(file, agent=True).declarations
    shape = declaration.parameters["properties"]["shape"]
    assert shape["required"] == ["points"]
    said = await bench.call(declaration, shape={"points": [{"x": 1, "y": 2}], "color": "blue", "title": "A"})
    assert said == {
        "output": "Titled(points=[Point(x=1.0, y=2.0)], color=<Color.BLUE: 'blue'>, label=None, area=0.0, title='A')"
    }


DRAW = """
    from __future__ import annotations

    from dataclasses import KW_ONLY, dataclass, field
    from enum import Enum
    from typing import ClassVar


    class Color(Enum):
        RED = "red"
        BLUE = "blue"


    @dataclass
    class Point:
        x: float
        y: float


    @dataclass
    class Shape:
        count: ClassVar[int] = 0
        points: list[Point]
        _: KW_ONLY
        color: Color = Color.RED
        label: str | None = None
        area: float = field(init=False, default=0.0)


    @dataclass
    class Titled(Shape):
        title: str = ""


    def draw(shape: Titled) -> str:
        \"\"\"Draw a shape.\"\"\"
        return repr(shape)
    """


@needs_typescript
async def test_the_documented_typescript_tool(bench: Bench) -> None:
    said = await call(
        bench,
        FIXTURES / "typescript" / "demo_ts.ts",
        "run",
        string="s", string_enum="foo", boolean=True, number=1.5, array_bracket=["a"], array_generic=[],
        array_optional=["last"],
    )  # fmt: skip
    assert said["output"].startswith('string: s\narray_optional: ["last"]\n')
    assert "LLM_TOOL_NAME: demo_ts" in said["output"]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
async def test_a_javascript_file_needs_no_types(bench: Bench) -> None:
    (declaration,) = read_tools(FIXTURES / "typescript" / "plain.js", agent=False).declarations
    assert await bench.call(msgspec.structs.replace(declaration, file=bench.write("plain.mjs", JAVASCRIPT))) == ["js"]


JAVASCRIPT = """
    export function run(...given) { return ["js"]; }
    """
