"""Python tools: what a function is called with, and what becomes of what it returns."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.messages import has_message, says
from support.tool_bench import Bench

from callboard.protocol.errors import ToolFailed

TYPES = """
    from __future__ import annotations
    import dataclasses, enum
    from typing import Annotated, Dict, List, Literal, NamedTuple, Optional, Tuple, TypedDict, Union

    class Colour(enum.Enum):
        RED = "red"
        BLUE = 2

    @dataclasses.dataclass
    class Point:
        x: float
        y: float = 0.0

    @dataclasses.dataclass
    class Path:
        points: list[Point]
        colour: Optional[Colour] = None
        tags: tuple[str, ...] = ()

    class Person(TypedDict, total=False):
        name: str
        at: Point

    class Pair(NamedTuple):
        a: int
        b: Colour
    """


async def test_arguments_are_built_from_nested_json(bench: Bench) -> None:
    said = await bench.python(
        TYPES
        + """
    def run(path: Path, person: Person, by_name: Dict[str, Point], pair: Pair, either: Union[int, Point],
            note: Annotated[Colour, "a note"], loose: dict, numbers: List[float], maybe: Optional[Point],
            word: Literal["a", 1], both: Tuple[Point, int], plain: Optional[int]):
        return repr([path, person, by_name, pair, either, note, loose, numbers, maybe, word, both, plain])
    """,
        path={"points": [{"x": 1}], "colour": "red", "tags": ["a"]},
        person={"name": "Ada", "at": {"x": 1, "y": 2}},
        by_name={"k": {"x": 3}},
        pair={"a": 1, "b": "BLUE"},
        either={"x": 4},
        note=2,
        loose={"x": 1},
        numbers=[1, 2.5],
        maybe={"x": 7.5},
        word=1,
        both=[{"x": 5}, 6],
    )
    assert said["output"] == (
        "[Path(points=[Point(x=1.0, y=0.0)], colour=<Colour.RED: 'red'>, tags=('a',)), "
        "{'name': 'Ada', 'at': Point(x=1.0, y=2.0)}, {'k': Point(x=3.0, y=0.0)}, Pair(a=1, b=<Colour.BLUE: 2>), "
        "Point(x=4.0, y=0.0), <Colour.BLUE: 2>, {'x': 1}, [1.0, 2.5], Point(x=7.5, y=0.0), 1, "
        "(Point(x=5.0, y=0.0), 6), None]"
    )


async def test_an_annotation_that_names_nothing_spoils_only_its_own_argument(bench: Bench) -> None:
    text = """
    from __future__ import annotations
    import dataclasses
    from typing import TYPE_CHECKING
    if TYPE_CHECKING:
        from somewhere import Unknown

    @dataclasses.dataclass
    class Point:
        x: float
        about: Unknown = None

    def run(at: Point, unknown: Unknown):
        return repr([at, unknown])
    """
    said = await bench.python(text, at={"x": 1, "about": [2]}, unknown={"y": 3})
    assert said == {"output": "[Point(x=1.0, about=[2]), {'y': 3}]"}


async def test_results_are_text_json_or_nothing(bench: Bench) -> None:
    for source, told in (
        ("return 'text'", {"output": "text"}),
        ("return {'a': (1, None)}", {"a": [1, None]}),
        ("return None", "DONE"),
        ("return True", {"output": "true"}),
        ("return [Path('x'), {1}, Colour.BLUE, Point(1)]", ["x", [1], 2, {"x": 1, "y": 0.0}]),
    ):
        text = TYPES + f"\n    from pathlib import Path\n    def run():\n        {source}\n"
        assert await bench.python(text) == told


async def test_async_functions_are_awaited(bench: Bench) -> None:
    text = """
        import asyncio
        async def run(a: int):
            await asyncio.sleep(0)
            return {"a": a}
        """
    assert await bench.python(text, a=2**53 - 1) == {"a": 2**53 - 1}


async def test_an_error_shows_the_tools_own_lines_only(bench: Bench) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.files.call._Call.check.2", status=1)) as failed:
        await bench.python("def run(a):\n    return 1 / a\n", a=0)
    assert "ZeroDivisionError" in failed.value.stderr
    assert "tools.py" in failed.value.stderr
    assert "run.py" not in failed.value.stderr
    with pytest.raises(ToolFailed, match=says("work.tools.files.call._Call.check.2", status=3)):
        await bench.python("import sys\ndef run():\n    sys.exit(3)\n")
    with pytest.raises(ToolFailed) as failed:
        await bench.python("def other(): pass\n")
    assert has_message(failed.value.stderr, "work.tools.files.runners.run.main", call="run")


async def test_the_module_is_no_main_and_sees_its_neighbours(bench: Bench) -> None:
    bench.write("neighbour.py", "word = 'hello'\n")
    said = await bench.python(
        """
        import sys
        from neighbour import word
        if __name__ == "__main__":
            sys.exit("not to be run")
        def run():
            return [word, __name__, sys.argv, __file__]
        """
    )
    file = str(bench.directory / "tools.py")
    assert said == ["hello", "tools", [file], file]


async def test_a_first_line_chooses_the_python(bench: Bench) -> None:
    file = bench.write("tools.py", "import sys\ndef run(): return sys.executable\n")
    link = bench.directory / "my-python"
    link.symlink_to(sys.executable)
    said = await bench.call(bench.declare(file, "run", interpreter=(str(link),)))
    assert said == {"output": str(link)}


async def test_a_virtual_environment_of_the_working_directory_is_preferred(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = bench.write("tools.py", "import sys\ndef run(): return sys.executable\n")
    python = bench.directory / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(Path(sys.executable).resolve())
    monkeypatch.chdir(bench.directory)
    for interpreter in ((), ("python3",)):
        said = await bench.call(bench.declare(file, "run", interpreter=interpreter))
        assert said == {"output": str(python)}
