"""Bash tools: what a function finds in its variables, its arguments and its surroundings."""

from __future__ import annotations

import pytest
from support.messages import has_message, says
from support.tool_bench import Bench, flag, option, positional

from callboard.actors.work.tools.declare.declaration import EnvVar
from callboard.protocol.errors import ToolFailed


async def test_options_flags_and_arrays_are_variables(bench: Bench) -> None:
    said = await bench.bash(
        """
        main() {
            printf '%s|%s|%s|%s|%s\\n' "$argc_file_path" "$argc_force" "${argc_skip-unset}" "${#argc_tags[@]}" \
                "${argc_tags[1]}" >> "$LLM_OUTPUT"
        }
        """,
        arguments=[option("file-path"), flag("force"), flag("skip"), option("tags", multiple=True)],
        file_path="a b",
        force=True,
        skip=False,
        tags=["x", "y z"],
    )
    assert said == {"output": "a b|1|unset|2|y z\n"}


async def test_a_value_is_never_evaluated(bench: Bench) -> None:
    hostile = """$(touch pwned) `touch pwned` "; touch pwned; ' \\ \n*.sh --x -n"""
    said = await bench.bash(
        'main() { printf %s "$argc_text" >> "$LLM_OUTPUT"; }', arguments=[option("text")], text=hostile
    )
    assert said == {"output": hostile}
    assert not list(bench.directory.rglob("pwned"))


async def test_positionals_are_the_functions_own_arguments_too(bench: Bench) -> None:
    said = await bench.bash(
        'main() { printf "%s," "$#" "$1" "$2" "$3" "$argc_first" "${argc_rest[@]}" >> "$LLM_OUTPUT"; }',
        arguments=[positional("first"), positional("rest", multiple=True)],
        first="-n",
        rest=["b c", ""],
    )
    assert said == {"output": "3,-n,b c,,-n,b c,,"}


async def test_a_positional_that_was_left_out_keeps_its_place(bench: Bench) -> None:
    said = await bench.bash(
        'main() { printf "%s," "$#" "$1" "$2" "${argc_one-unset}" >> "$LLM_OUTPUT"; }',
        arguments=[positional("one"), positional("two")],
        two="b",
    )
    assert said == {"output": "2,,b,unset,"}


async def test_defaults_come_from_the_file_or_its_functions(bench: Bench) -> None:
    said = await bench.bash(
        """
        _words() { echo one; echo "two three"; }
        main() { printf '%s,' "$argc_plain" "$argc_word" "${argc_words[@]}" "$1" >> "$LLM_OUTPUT"; }
        """,
        arguments=[
            option("plain", default="p q"),
            option("word", default_function="_words"),
            option("words", multiple=True, default_function="_words"),
            positional("at", default_function="_words"),
        ],
    )
    assert said == {"output": "p q,one,one,two three,one,"}


async def test_choices_are_checked_wherever_they_come_from(bench: Bench) -> None:
    text = """
        _choices() { echo even; echo odd; }
        main() { printf '%s' "$argc_a" >> "$LLM_OUTPUT"; }
        """
    fixed, called = option("a", choices=("even", "odd")), option("a", choices_function="_choices")
    free = option("a", choices_function="_choices", check_choices=False)
    for argument in (fixed, called, free):
        assert await bench.bash(text, arguments=[argument], a="odd") == {"output": "odd"}
    assert await bench.bash(text, arguments=[free], a="other") == {"output": "other"}
    with pytest.raises(
        ToolFailed, match=says("work.tools.files.runner_protocol._argument_record.2", allowed="even, odd", one="other")
    ):
        await bench.bash(text, arguments=[fixed], a="other")
    with pytest.raises(ToolFailed, match=says("work.tools.files.call._Call.check.2", status=2)) as failed:
        await bench.bash(text, arguments=[called], a="other")
    assert "'other' is not allowed for 'a'; allowed: even,odd" in failed.value.stderr


async def test_environment_variables_are_required_defaulted_and_checked(bench: Bench) -> None:
    file = bench.write(
        "tools.sh",
        """
        export SET_HERE=yes
        _default() { echo from a function; }
        main() { printf '%s,' "$PLAIN" "$CALLED" "$SET_HERE" "${OPTIONAL-unset}" >> "$LLM_OUTPUT"; }
        """,
    )
    variables = [
        EnvVar(name="PLAIN", default="d"),
        EnvVar(name="CALLED", default_function="_default"),
        EnvVar(name="SET_HERE", required=True, choices=("yes", "no")),
        EnvVar(name="OPTIONAL"),
    ]
    assert await bench.call(bench.declare(file, environment=variables)) == {"output": "d,from a function,yes,unset,"}
    for variable, complaint in (
        (EnvVar(name="MISSING", required=True), "'MISSING' is required and not set"),
        (EnvVar(name="SET_HERE", choices=("no",)), "'yes' is not allowed for the environment variable 'SET_HERE'"),
    ):
        with pytest.raises(ToolFailed) as failed:
            await bench.call(bench.declare(file, environment=[variable]))
        assert complaint in failed.value.stderr


async def test_an_environment_variable_stands_in_for_an_argument(bench: Bench) -> None:
    file = bench.write("tools.sh", 'main() { printf %s "$argc_a" >> "$LLM_OUTPUT"; }')
    declaration = bench.declare(file, arguments=[option("a", environment="THE_A", default="d")])
    home = bench.at_home(environ={**bench.home.environ, "THE_A": "from outside"})
    assert await bench.call(declaration, home=home) == {"output": "from outside"}
    assert await bench.call(declaration, home=home, a="given") == {"output": "given"}
    assert await bench.call(declaration) == {"output": "d"}


async def test_a_program_that_the_tool_needs_and_that_is_missing_is_named(bench: Bench) -> None:
    file = bench.write("tools.sh", 'main() { echo hi >> "$LLM_OUTPUT"; }')
    with pytest.raises(ToolFailed) as failed:
        await bench.call(bench.declare(file, requires=("bash", "no-such-program")))
    assert "needs the program 'no-such-program'" in failed.value.stderr


async def test_hooks_run_before_and_after(bench: Bench) -> None:
    said = await bench.bash(
        """
        _argc_before() { printf before, >> "$LLM_OUTPUT"; }
        _argc_after() { printf after >> "$LLM_OUTPUT"; }
        main() { printf "$argc__fn," >> "$LLM_OUTPUT"; }
        eval "$(argc --argc-eval "$0" "$@")"
        """
    )
    assert said == {"output": "before,main,after"}


async def test_the_file_is_what_it_takes_itself_for(bench: Bench) -> None:
    said = await bench.bash('main() { printf "%s\\n" "$0" "${BASH_SOURCE[0]}" "$PWD" >> "$LLM_OUTPUT"; }')
    from pathlib import Path

    file = str(bench.directory / "tools.sh")
    assert said == {"output": f"{file}\n{file}\n{Path.cwd()}\n"}


async def test_strict_shells_are_no_trouble(bench: Bench) -> None:
    said = await bench.bash(
        """
        set -euo pipefail
        IFS=$'\\n\\t'
        shopt -s nullglob
        main() { printf '%s,' "$argc_a" "${argc_b[@]}" "${argc_c:-}" >> "$LLM_OUTPUT"; }
        """,
        arguments=[option("a"), option("b", multiple=True), positional("c"), flag("d")],
        a="1 2",
        b=["*", "3 4"],
    )
    assert said == {"output": "1 2,*,3 4,,"}


async def test_a_file_with_a_parser_of_its_own_gets_a_command_line(bench: Bench) -> None:
    file = bench.write(
        "tools.sh",
        """
        # ARGC-BUILD {
        printf '[%s]' "$@" >> "$LLM_OUTPUT"
        # ARGC-BUILD }
        """,
    )
    declaration = bench.declare(
        file,
        "copy",
        built=True,
        arguments=[option("file-path"), flag("force"), flag("skip"), option("tags", multiple=True)],
    )
    given = {"file_path": "a b", "force": True, "skip": False, "tags": ["x", "y"]}
    assert await bench.call(declaration, given) == {"output": "[copy][--file-path=a b][--force][--tags=x][--tags=y]"}


async def test_nested_values_arrive_as_json_text(bench: Bench) -> None:
    said = await bench.bash(
        'main() { printf "%s\\n" "$argc_a" "${argc_b[@]}" >> "$LLM_OUTPUT"; }',
        arguments=[option("a"), option("b", multiple=True)],
        a={"x": [1, "é"]},
        b=[{"y": None}, 2.5],
    )
    assert said == {"output": '{"x":[1,"é"]}\n{"y":null}\n2.5\n'}


async def test_a_nul_or_half_a_character_can_not_be_told_to_bash(bench: Bench) -> None:
    for text in ("a\0b", "a\ud800b"):
        with pytest.raises(ToolFailed, match="Tool 't'"):
            await bench.bash("main() { :; }", arguments=[option("a")], a=text)
    with pytest.raises(ToolFailed, match=says("work.tools.files.runner_protocol._half_a_character")):
        await bench.python("def run(a): return a", a="a\ud800b")
    assert await bench.python("def run(a): return [a]", a="a\0b") == ["a\0b"]


async def test_a_function_that_is_not_there_is_named(bench: Bench) -> None:
    with pytest.raises(ToolFailed) as failed:
        await bench.call(bench.declare(bench.write("tools.sh", "other() { :; }"), "main"))
    assert has_message(failed.value.stderr, "work.tools.files.runners.run.main", call="main")


async def test_a_first_line_may_give_bash_its_options_but_not_replace_it(bench: Bench) -> None:
    file = bench.write(
        "tools.sh", 'main() { echo "$- ${argc_a[*]}" >> "$LLM_OUTPUT"; false; echo late >> "$LLM_OUTPUT"; }'
    )
    argument = [option("a", multiple=True)]
    with pytest.raises(ToolFailed, match=says("work.tools.files.call._Call.check.2", status=1)):
        await bench.call(bench.declare(file, interpreter=("bash", "-eu"), arguments=argument), a=[])
    said = await bench.call(bench.declare(file, interpreter=("sh",), arguments=argument), a=["b"])
    assert said["output"].endswith(" b\nlate\n")


async def test_a_file_with_line_ends_of_windows_runs(bench: Bench) -> None:
    text = """main() {\r
    if true; then\r
        printf %s "$argc_text" >> "$LLM_OUTPUT"\r
    fi\r
}\r
"""
    said = await bench.bash(text, arguments=[option("text")], text="a\r\nb")
    assert said == {"output": "a\r\nb"}
