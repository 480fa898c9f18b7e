"""TypeScript tools, where node can run them; what is said where it can't."""

from __future__ import annotations

import os
import shutil
import subprocess

import msgspec
import pytest
from support.messages import says
from support.tool_bench import Bench, needs_typescript

from callboard.actors.work.tools.files.call import command
from callboard.protocol.errors import ToolFailed

TOOLS = """
    type Point = { x: number; y?: number };
    function helper(point: Point): number { return point.x + (point.y ?? 0); }

    export function greet(name: string, count: number = 2, point?: Point, loud: boolean | null = null): string {
        return [name, count, point ? helper(point) : "none", loud].join("|");
    }
    export async function nested(value: { a: string[] }): Promise<object> { return { got: value.a }; }
    export function nothing(): void { console.log("printed"); }
    export function fails(): string { throw new Error("no such thing"); }
    export function asks(): string[] {
        return [prompt("Name?") ?? "", String(confirm("Sure?"))];
    }
    """


@needs_typescript
async def test_functions_are_called_with_their_parameters_in_order(bench: Bench) -> None:
    file = bench.write("tools.ts", TOOLS)
    greet = bench.declare(file, "greet", names=["name", "count", "point", "loud"])
    assert await bench.call(greet, point={"x": 1, "y": 2}, name="Ada", loud=True) == {"output": "Ada|2|3|true"}
    assert await bench.call(bench.declare(file, "nested", names=["value"]), value={"a": ["é"]}) == {"got": ["é"]}
    assert await bench.call(bench.declare(file, "nothing")) == "DONE"
    assert "printed" in bench.printed


@needs_typescript
async def test_an_error_is_told(bench: Bench) -> None:
    file = bench.write("tools.ts", TOOLS)
    with pytest.raises(ToolFailed, match=says("work.tools.files.call._Call.check.2", status=1)) as failed:
        await bench.call(bench.declare(file, "fails"))
    assert "no such thing" in failed.value.stderr
    with pytest.raises(ToolFailed) as failed:
        await bench.call(bench.declare(file, "helper"))
    assert "exports no function 'helper'" in failed.value.stderr


@needs_typescript
async def test_prompt_confirm_readline_and_stdin_ask(bench: Bench) -> None:
    bench.answers = ["Ada", "no", "by readline", "by promise", "by stdin"]
    file = bench.write(
        "tools.ts",
        TOOLS
        + """
    import readline from "node:readline";
    import promises from "node:readline/promises";
    export async function more(): Promise<string[]> {
        const first = readline.createInterface({ input: process.stdin, output: process.stdout });
        const one = await new Promise<string>((resolve) => first.question("First? ", resolve));
        const second = promises.createInterface({ input: process.stdin, output: process.stdout });
        const two = await second.question("Second? ");
        first.close(); second.close();
        return [one, two];
    }
    export async function all(): Promise<string> {
        let text = "";
        for await (const part of process.stdin) text += part;
        return text;
    }
    """,
    )
    assert await bench.call(bench.declare(file, "asks")) == ["Ada", "false"]
    assert await bench.call(bench.declare(file, "more")) == ["by readline", "by promise"]
    assert await bench.call(bench.declare(file, "all")) == {"output": "by stdin\n"}
    assert [question.text for question in bench.questions[:4]] == ["Name?", "Sure?", "First? ", "Second? "]


async def test_without_node_it_says_what_is_needed(bench: Bench) -> None:
    file = bench.write("tools.ts", TOOLS)
    empty = bench.at_home(environ={"PATH": str(bench.directory)})
    with pytest.raises(ToolFailed, match="'node' " + says("work.tools.files.call._found.3") + "; it needs `tsx`"):
        await bench.call(bench.declare(file, "greet"), home=empty)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
async def test_a_node_that_knows_no_types_and_no_npx_says_what_is_needed(bench: Bench) -> None:
    node = shutil.which("node")
    assert node is not None
    asked = subprocess.run([node, "-p", "process.features.typescript"], capture_output=True, check=False)
    if asked.stdout.strip() in (b"strip", b"transform"):
        pytest.skip("this node knows types")
    (bench.directory / "node").symlink_to(node)
    file = bench.write("tools.ts", TOOLS)
    alone = bench.at_home(environ={"PATH": str(bench.directory)})
    with pytest.raises(ToolFailed, match=says("work.tools.files.call")):
        await bench.call(bench.declare(file, "greet", names=["name"]), name="Ada", home=alone)
    (bench.directory / "npx").write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    (bench.directory / "npx").chmod(0o755)
    with pytest.raises(ToolFailed, match=says("work.tools.files.call.command_by_npx.3")) as failed:
        await bench.call(bench.declare(file, "greet", names=["name"]), name="Ada", home=alone)
    assert "no network" in failed.value.stderr


async def test_tsx_is_loaded_into_node_so_that_our_descriptors_stay(bench: Bench) -> None:
    package = bench.directory / "node_modules" / "tsx" / "dist"
    package.mkdir(parents=True)
    (package / "loader.mjs").write_text("")
    (package / "cli.mjs").write_text("")
    (package / "cli.mjs").chmod(0o755)
    binaries = bench.directory / "node_modules" / ".bin"
    binaries.mkdir()
    (binaries / "tsx").symlink_to(package / "cli.mjs")
    (bench.directory / "node").write_text("#!/bin/sh\n")
    (bench.directory / "node").chmod(0o755)
    file = bench.write("functions/tools.ts", TOOLS)
    environ = {"PATH": str(bench.directory) + os.pathsep + os.defpath}
    expected = [str(bench.directory / "node"), "--import", (package / "loader.mjs").as_uri()]
    for interpreter in ((), ("tsx",), ("npx", "tsx")):
        assert command(bench.declare(file, "greet", interpreter=interpreter), environ)[:3] == expected
    (bench.directory / "bun").write_text("#!/bin/sh\n")
    (bench.directory / "bun").chmod(0o755)
    bun = command(bench.declare(file, "greet", interpreter=("bun",)), environ)
    assert bun[0] == str(bench.directory / "bun")
    assert bun[1].endswith("run.mjs")


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
async def test_javascript_of_llm_functions_gets_one_object(bench: Bench) -> None:
    file = bench.write("add.js", "exports.run = async ({ a, b }) => ({ sum: a + (b ?? 0) });")
    one = msgspec.structs.replace(bench.declare(file, "run", names=["a", "b"]), takes_object=True)
    assert await bench.call(one, b=2, a=1) == {"sum": 3}
    assert await bench.call(one, a=1) == {"sum": 1}
