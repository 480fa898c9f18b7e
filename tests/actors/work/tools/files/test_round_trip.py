"""Values come through bash, Python and TypeScript as they are: any text without NUL, lists of it, booleans, integers.

Starting a process costs more than all the rest, so one call carries many examples; a few calls carry one value each.
"""

from __future__ import annotations

from typing import Any

import msgspec
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.tool_bench import Bench, flag, needs_typescript, option, positional

from callboard.supervisors import Root

HOSTILE = [
    "", " ", "\n", "a\n\n", "'", '"', "\\", "\\n", "$(id)", "`id`", "${x}", "--flag", "-n", "-e", "*", "~",
    "!x", "%s", "\x01", "\x7f",
    "\x01\x7f", "\r\n", "\t", "é", "🜁", "\ufeff", "\u2028", "a\x1bb", "\x85", "\ud7ff", "a'b\"c`d$e\\f",
]  # fmt: skip

texts = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
integers = st.integers(-(2**53) + 1, 2**53 - 1)
batches = st.lists(texts, min_size=30, max_size=60).map(lambda found: HOSTILE + found)


def called(text: str, name: str, function: str, tmp_path: Any, arguments: list[Any], values: dict[str, Any]) -> Any:
    """One call under a root of its own."""

    async def run() -> Any:
        async with Root() as root:
            bench = Bench(root, tmp_path)
            file = bench.write(name, text)
            return await bench.call(bench.declare(file, function, arguments=arguments, names=list(values)), values)

    return trio.run(run)


some = settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), database=None)

BASH = """
    main() {
        printf '%s\\0' "${argc_many[@]}" "$argc_one" "$argc_number" > "$LLM_OUTPUT"
        printf '%s\\0' "${argc_yes-unset}" "${argc_no-unset}" "$@" >> "$LLM_OUTPUT"
    }
    """


@given(many=batches, one=texts, number=integers, first=texts)
@some
def test_bash(tmp_path_factory: Any, many: list[str], one: str, number: int, first: str) -> None:
    arguments = [
        option("many", multiple=True), option("one"), option("number"), flag("yes"), flag("no"), positional("first"),
    ]  # fmt: skip
    values = {"many": many, "one": one, "number": number, "yes": True, "no": False, "first": first}
    said = called(BASH, "tools.sh", "main", tmp_path_factory.mktemp("bash"), arguments, values)
    assert said["output"].split("\0")[:-1] == [*many, one, str(number), "1", "unset", first]


PYTHON = """
    def run(many: list[str], one: str, number: int, yes: bool, no: bool, first: str):
        return {"all": [many, one, number, yes, no, first]}
    """


@given(many=batches, one=texts, number=integers, first=texts)
@some
def test_python(tmp_path_factory: Any, many: list[str], one: str, number: int, first: str) -> None:
    values = {"many": many, "one": one, "number": number, "yes": True, "no": False, "first": first}
    said = called(PYTHON, "tools.py", "run", tmp_path_factory.mktemp("py"), [], values)
    assert said == {"all": list(values.values())}


TYPESCRIPT = """
    export function run(many: string[], one: string, number: number, yes: boolean, no: boolean, first: string) {
        return { all: [many, one, number, yes, no, first] };
    }
    """


@needs_typescript
@given(many=batches, one=texts, number=integers, first=texts)
@settings(some, max_examples=2)
def test_typescript(tmp_path_factory: Any, many: list[str], one: str, number: int, first: str) -> None:
    values = {"many": many, "one": one, "number": number, "yes": True, "no": False, "first": first}
    said = called(TYPESCRIPT, "tools.ts", "run", tmp_path_factory.mktemp("ts"), [], values)
    assert said == {"all": list(values.values())}


async def test_one_value_alone(bench: Bench) -> None:
    for text in ("", "-n", "--", "a\nb\n", "$(id)'\"\\", "\x01\x7f"):
        said = await bench.bash(
            'main() { printf "%s|%s|$#" "$argc_one" "$1" >> "$LLM_OUTPUT"; }',
            arguments=[option("one"), positional("two")],
            one=text,
            two=text,
        )
        assert said == {"output": f"{text}|{text}|1"}


nested = st.recursive(
    st.none() | st.booleans() | integers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)


@given(
    values=st.lists(st.lists(nested, max_size=3) | st.dictionaries(texts, nested, max_size=3), min_size=3, max_size=6)
)
@some
def test_nested_values_arrive_in_bash_as_json(tmp_path_factory: Any, values: list[Any]) -> None:
    arguments = [option(f"v{number}") for number in range(len(values))]
    text = 'main() { for name in ${!argc_v*}; do printf "%s\\0%s\\0" "$name" "${!name}" >> "$LLM_OUTPUT"; done; }'
    directory = tmp_path_factory.mktemp("nested")
    said = called(text, "tools.sh", "main", directory, arguments, {f"v{at}": value for at, value in enumerate(values)})
    words = said["output"].split("\0")[:-1]
    found = {name: msgspec.json.decode(value) for name, value in zip(words[::2], words[1::2], strict=True)}
    assert found == {f"argc_v{number}": value for number, value in enumerate(values)}


async def test_a_megabyte_fits_into_one_argument(bench: Bench) -> None:
    text = "x" * 1_000_000
    said = await bench.bash(
        'main() { printf %s "${#argc_one}" >> "$LLM_OUTPUT"; }', arguments=[option("one")], one=text
    )
    assert said == {"output": "1000000"}
