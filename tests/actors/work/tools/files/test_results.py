"""What the model is told: the result rules of loki.md A14, and what goes wrong."""

from __future__ import annotations

import pytest
from support.messages import says
from support.tool_bench import Bench
from support.waiting import open_descriptors

from callboard.actors.work.tools.files.call import instructions
from callboard.actors.work.tools.files.call_process import CallLimits
from callboard.protocol.errors import ToolFailed
from callboard.supervisors import Actor


async def test_case_92_what_is_written_is_the_result(bench: Bench) -> None:
    for written, told in (
        ('{"x":1}', {"x": 1}),
        ("[1]", [1]),
        ("hi", {"output": "hi"}),
        ("42", {"output": "42"}),
        ('"text"', {"output": '"text"'}),
        ('{"x":', {"output": '{"x":'}),
        ("", "DONE"),
    ):
        assert await bench.bash(f"main() {{ echo shown; printf %s '{written}' >> \"$LLM_OUTPUT\"; }}") == told
    assert bench.printed == ["shown"] * 7


async def test_case_92_a_status_other_than_0_is_an_error_with_stderr(bench: Bench) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.files.call._Call.check.2", _tool="t", status=2)) as failed:
        await bench.bash("main() { echo no such thing >&2; return 2; }")
    assert failed.value.stderr == "no such thing\n"
    with pytest.raises(ToolFailed, match=says("work.tools.files.call._Call.check.3", signal="SIGSEGV")):
        await bench.bash("main() { kill -SEGV $$; }")


async def test_what_a_failed_call_had_written_is_told(bench: Bench) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.files.call._Call.check.2", status=2)) as failed:
        await bench.bash('main() { echo "2 errors in a.c" >> "$LLM_OUTPUT"; return 2; }')
    assert failed.value.output == "2 errors in a.c\n"


async def test_what_it_prints_on_both_streams_is_heard_line_by_line(bench: Bench) -> None:
    await bench.bash("main() { echo one; echo two >&2; printf three; }")
    assert sorted(bench.printed) == ["one", "three", "two"]


async def test_a_long_result_is_cut_and_says_so(bench: Bench) -> None:
    file = bench.write("tools.sh", 'main() { printf "€%.0s" {1..100} >> "$LLM_OUTPUT"; }')
    said = await bench.call(bench.declare(file), limits=CallLimits(result=100))
    assert said["output"] == "€" * 33 + "\n[cut: the tool wrote 300 bytes, and these are the first 100]"


async def test_a_tool_may_replace_or_remove_its_output(bench: Bench) -> None:
    assert await bench.bash('main() { echo new > new; mv new "$LLM_OUTPUT"; }') == {"output": "new\n"}
    assert await bench.bash('main() { rm "$LLM_OUTPUT"; }') == "DONE"
    assert await bench.bash('main() { rm "$LLM_OUTPUT"; mkfifo "$LLM_OUTPUT"; }') == "DONE"


async def test_a_missing_file_or_interpreter_is_named(bench: Bench) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.files.call.play", file="…gone.sh")):
        await bench.call(bench.declare(bench.directory / "gone.sh"))
    file = bench.write("tools.py", "def run(): pass\n")
    with pytest.raises(
        ToolFailed, match=r"'no\-such\-python'" + says("work.tools.files.call._found") + " is not on the PATH"
    ):
        await bench.call(bench.declare(file, "run", interpreter=("no-such-python",)))


async def test_the_file_is_left_as_it_was(bench: Bench) -> None:
    for file, function in (
        (bench.write("a/tools.sh", "main() { :; }"), "main"),
        (bench.write("b/tools.py", "import helper\ndef run(): return helper.x\n"), "run"),
    ):
        (file.parent / "helper.py").write_text("x = 'y'\n")
        before = sorted(file.parent.iterdir()), file.read_bytes(), file.stat().st_mtime_ns
        await bench.call(bench.declare(file, function))
        assert (sorted(file.parent.iterdir()), file.read_bytes(), file.stat().st_mtime_ns) == before


async def test_instructions_are_the_text_that_the_function_writes(bench: Bench) -> None:
    file = bench.write("tools.sh", """_instructions() { printf '{"be": "kind"}' >> "$LLM_OUTPUT"; }""")
    declaration = bench.declare(file, "_instructions", name="_instructions")

    async def run(me: Actor) -> str:
        return await instructions(me, declaration, bench.home)

    assert await bench.root.actor.spawn(run).result() == '{"be": "kind"}'


async def test_a_failure_of_instructions_says_why_and_not_where_in_node(bench: Bench) -> None:
    frames = "\n".join(
        f"    at Module.load{number} (node:internal/modules/cjs/loader:{number}:14)" for number in range(40)
    )
    (bench.directory / "stderr.txt").write_text(
        f"Error: Cannot find module 'left-pad'\nRequire stack:\n- /x/tools.js\n{frames}\n"
    )
    file = bench.write("tools.sh", f"_instructions() {{ cat '{bench.directory}/stderr.txt' >&2; return 1; }}")
    declaration = bench.declare(file, "_instructions", name="_instructions")

    async def run(me: Actor) -> str:
        with pytest.raises(ToolFailed) as failed:
            await instructions(me, declaration, bench.home)
        return str(failed.value)

    text = await bench.root.actor.spawn(run).result()
    assert text.endswith("it wrote to stderr: Error: Cannot find module 'left-pad'")


async def test_nothing_is_left_of_a_call_but_its_cache(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path_factory.mktemp("calls")
    monkeypatch.setenv("TMPDIR", str(place))
    text = """
        main() {
            touch "$LLM_TOOL_CACHE_DIR/kept"
            sleep 60 &
            dirname "$LLM_OUTPUT" >> "$LLM_OUTPUT"
        }
        """
    await bench.bash(text)  # the first one starts the guardian
    before = open_descriptors()
    said = await bench.bash(text)
    assert open_descriptors() <= before, "others may have been closed meanwhile: garbage of earlier tests"
    assert str(said["output"]).startswith(str(place))
    assert list(place.glob("*/*")) == []
    assert (bench.home.cache / "tools" / "t" / "kept").is_file()
