"""argc's comments: what the model is told, how it reaches the script, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.messages import has_message

from callboard.actors.work.tools.declare.declaration import Argument, Declaration, EnvVar, ToolFile
from callboard.actors.work.tools.declare.read import read_tools
from callboard.protocol.problems import Problem


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


class Reads:
    def __init__(self, directory: Path) -> None:
        self._file = directory / "t.sh"

    def __call__(self, text: str, *, agent: bool = False) -> ToolFile:
        self._file.write_text(text)
        return read_tools(self._file, agent=agent)

    def tool(self, *comments: str) -> Declaration:
        read = self("\n".join(["# @describe D", *(f"# {comment}" for comment in comments), "main() { :; }"]))
        assert read.problems == []
        return read.declarations[0]

    def only_problem(self, text: str, *, agent: bool = False) -> Problem:
        read = self(text, agent=agent)
        assert len(read.problems) == 1, [str(problem) for problem in read.problems]
        return read.problems[0]


@pytest.fixture
def reads(directory: Path) -> Reads:
    return Reads(directory)


def test_case_90_types_choices_and_names(reads: Reads) -> None:
    one = reads.tool(
        "@option --integer! <INT>", "@option --array+", "@option --string-enum![foo|bar]", "@flag --boolean"
    )
    assert one.parameters == {
        "type": "object",
        "properties": {
            "integer": {"type": "integer"},
            "array": {"type": "array", "items": {"type": "string"}},
            "string_enum": {"type": "string", "enum": ["foo", "bar"]},
            "boolean": {"type": "boolean"},
        },
        "required": ["integer", "array", "string_enum"],
    }


@pytest.mark.parametrize(
    ("comment", "argument"),
    [
        ("@option --file-path! <FILE> F", Argument(name="file_path", kind="option", long="file-path", required=True)),
        ("@option -o --out O", Argument(name="out", kind="option", long="out", short="-o")),
        ("@option -o O", Argument(name="o", kind="option", short="-o")),
        ("@option -out O", Argument(name="out", kind="option", long="out")),
        ("@option --a.b:c", Argument(name="a_b_c", kind="option", long="a.b:c")),
        (
            "@flag -v --verbose* V",
            Argument(name="verbose", kind="flag", long="verbose", short="-v", multiple=True, values=0),
        ),
        ("@option --t*,", Argument(name="t", kind="option", long="t", multiple=True, comma=",")),
        ("@option --t+: T", Argument(name="t", kind="option", long="t", multiple=True, comma=":", required=True)),
        ("@option --r~ R", Argument(name="r", kind="option", long="r", capture=True)),
        ("@option --p <A> <B> P", Argument(name="p", kind="option", long="p", values=2)),
        ("@option --p <A> <B+> P", Argument(name="p", kind="option", long="p", values=2, more=True)),
        ("@option --p <A*> P", Argument(name="p", kind="option", long="p", more=True)),
        ("@option --l <a,b> L", Argument(name="l", kind="option", long="l", multiple=True, comma=",")),
        ("@arg x=1 X", Argument(name="x", kind="positional", long="x", default="1")),
        ("@arg x= X", Argument(name="x", kind="positional", long="x", default="")),
        ("@arg x=`_fn` X", Argument(name="x", kind="positional", long="x", default_function="_fn")),
        ("@arg x[`_fn`] X", Argument(name="x", kind="positional", long="x", choices_function="_fn")),
        (
            "@arg x[?`_fn`]",
            Argument(name="x", kind="positional", long="x", choices_function="_fn", check_choices=False),
        ),
        ("@arg x[=a|b] X", Argument(name="x", kind="positional", long="x", default="a", choices=("a", "b"))),
        ("@arg x $HOME X", Argument(name="x", kind="positional", long="x", environment="HOME")),
        ("@option --api-key $$", Argument(name="api_key", kind="option", long="api-key", environment="API_KEY")),
    ],
)
def test_how_an_argument_reaches_the_script(reads: Reads, comment: str, argument: Argument) -> None:
    assert reads.tool(comment).arguments == (argument,)


@pytest.mark.parametrize(
    ("comment", "variable"),
    [
        (
            "@env LLM_OUTPUT=/dev/stdout The path",
            EnvVar(name="LLM_OUTPUT", default="/dev/stdout", description="The path"),
        ),
        ("@env A", EnvVar(name="A")),
        ("@env A! Needed", EnvVar(name="A", required=True, description="Needed")),
        ("@env A=`_fn`", EnvVar(name="A", default_function="_fn")),
        ("@env A[=x|y]", EnvVar(name="A", default="x", choices=("x", "y"))),
        ("@env A[`_fn`] From", EnvVar(name="A", choices_function="_fn", description="From")),
    ],
)
def test_variables_are_not_the_models(reads: Reads, comment: str, variable: EnvVar) -> None:
    one = reads.tool(comment)
    assert one.environment == (variable,)
    assert one.parameters == {"type": "object", "properties": {}, "required": []}


def test_what_a_default_or_a_variable_stands_in_for_is_not_required(reads: Reads) -> None:
    one = reads.tool("@option --a!", "@option --b! $KEY B", "@option --c+=x C")
    assert one.parameters["required"] == ["a"]
    assert [argument.required for argument in one.arguments] == [True, True, True]


def test_descriptions_go_on_below_and_end_with_the_comments(reads: Reads) -> None:
    read = reads(
        "# @describe One\n# two\n#\n# three\n# shellcheck disable=SC1\n## ruler\n# not\n"
        "# @option --a First\n#   second\n\n# not this\nmain() { :; }"
    )
    (one,) = read.declarations
    assert one.description == "One\ntwo\n\nthree"
    assert one.parameters["properties"]["a"]["description"] == "First\n  second"


def test_programs_and_variables_of_the_file_and_of_a_command(reads: Reads) -> None:
    read = reads(
        "# @meta require-tools jq,yq curl\n# @env A\n# @option --not-inherited\n"
        "# @cmd One\n# @meta require-tools jq,git\n# @env B\none() { :; }",
        agent=True,
    )
    (one,) = read.declarations
    assert one.requires == ("jq", "yq", "curl", "git")
    assert [variable.name for variable in one.environment] == ["A", "B"]
    assert one.arguments == ()


def test_a_built_file_reads_as_before_it_was_built(reads: Reads) -> None:
    text = "# @describe D\n# @option --a A\nmain() { :; }\n"
    built = text + "\n# ARGC-BUILD {\n# @option --b B\n_argc_run() { :; }\n# } ARGC-BUILD\n"
    plain, after = reads(text).declarations[0], reads(built).declarations[0]
    assert not plain.built
    assert after == msgspec.structs.replace(plain, built=True)


def test_text_in_a_here_document_is_no_declaration(reads: Reads) -> None:
    read = reads(
        "# @cmd A\na() {\n  cat <<-'EOF' <<X\n\t# @cmd No\n\tno() {\n\tEOF\n# @cmd Neither\nX\n}\n"
        "b=$((1<<c))\n# @cmd C\nc() { :; }",
        agent=True,
    )
    assert [one.name for one in read.declarations] == ["a", "c"]
    assert read.problems == []


@pytest.mark.parametrize("text", ["main() { :; }", "# @describe\nmain() { :; }", "# @option --a A\nmain() { :; }"])
def test_a_tool_needs_a_description(reads: Reads, text: str) -> None:
    assert has_message(reads.only_problem(text).message, "work.tools.declare.bash._declaration", name="t")


def test_main_may_have_its_description_from_a_command(reads: Reads) -> None:
    read = reads("# @option --a A\n\n# @cmd Does it\n# @flag --b B\nmain() { :; }\n")
    assert [(one.name, one.description) for one in read.declarations] == [("t", "Does it")]
    assert list(read.declarations[0].parameters["properties"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("comment", "message", "column"),
    [
        ("@option name", "@option: no name", 11),
        ("@flag", "@flag: no name", 8),
        ("@arg !", "@arg: no name", 8),
        ("@option --a%b", "@option: can't read '%b'", 14),
        ("@option --a[x|y", "@option: the list of choices is not closed", 14),
        ("@option --a[x||y]", "@option: a choice is empty or occurs twice", 20),
        ("@option --a[x|x]", "@option: a choice is empty or occurs twice", 19),
        ("@option --a[]", "@option: a choice is empty or occurs twice", 16),
        ("@option --a=x[y]z w", "", 0),
        ("@flag --a=x", "@flag: a flag has no value", 14),
        ("@flag --a! A", "@flag: a flag has no value", 13),
        ("@env 1", "@env: no name of a variable", 8),
        ("@env A? x", "@env: can't read '?'", 9),
    ],
)
def test_a_comment_that_cant_be_read_says_where(reads: Reads, comment: str, message: str, column: int) -> None:
    read = reads(f"# @describe D\n# {comment}\nmain() {{ :; }}")
    if not message:
        assert read.problems == []
        return
    (problem,) = read.problems
    assert (problem.message, problem.line, problem.column) == (message, 2, column)
    assert read.declarations == []


@pytest.mark.parametrize(
    ("comment", "doubt"),
    [
        ("@option --n=x <INT>", "@option n: the default 'x' is not of the type integer"),
        ("@option --n[1|b] <NUM>", "@option n: not every choice is of the type number"),
    ],
)
def test_values_of_another_type_are_a_warning(reads: Reads, comment: str, doubt: str) -> None:
    problem = reads.only_problem(f"# @describe D\n# {comment}\nmain() {{ :; }}")
    assert (problem.severity, problem.message, problem.line) == ("warning", doubt, 2)


def test_all_problems_come_at_once_and_the_other_tools_remain(reads: Reads) -> None:
    read = reads(
        "# @optoin --x\n# @cmd\nempty() { :; }\n# @cmd Fine\nfine() { :; }\n"
        "# @cmd Wrong\n# @option a\n# @option b\nwrong() { :; }\n"
        "# @cmd Twice\n# @option --a-b\n# @arg a_b\ntwice() { :; }\n# @cmd Lost\n",
        agent=True,
    )
    assert [one.name for one in read.declarations] == ["fine"]
    assert [(problem.line, problem.message) for problem in read.problems] == [
        (1, "unknown tag @optoin"),
        (2, "Tool definition missing or empty description: empty"),
        (7, "@option: no name"),
        (8, "@option: no name"),
        (10, "'twice' has two arguments with the name 'a_b'"),
        (14, "no function follows this @cmd"),
    ]
    assert has_message(read.problems[0].hint, "protocol.problems.suggestion", name="option")


def test_a_command_that_no_provider_could_call(reads: Reads) -> None:
    problem = reads.only_problem("# @cmd Sub\nfoo::bar() { :; }", agent=True)
    assert (problem.message, problem.hint) == (
        "'foo::bar' can't be the name of a tool",
        "rename it, for instance to 'foo_bar'",
    )


def test_an_option_of_no_command_is_told(reads: Reads) -> None:
    problem = reads.only_problem("# @cmd A\na() { :; }\n# @option --x X\nb() { :; }", agent=True)
    assert (problem.message, problem.line, problem.hint) == (
        "@option belongs to no command",
        3,
        "is a `# @cmd` missing?",
    )


def test_the_same_command_twice_is_an_error(reads: Reads) -> None:
    problem = reads.only_problem("# @cmd A\na() { :; }\n# @cmd B\na() { :; }", agent=True)
    assert has_message(problem.message, "work.tools.declare.bash._blocks", name="a")


def test_instructions_need_neither_tag_nor_description(reads: Reads) -> None:
    read = reads("_instructions() { echo hi; }\n# @cmd A\na() { :; }", agent=True)
    assert read.instructions is not None
    assert (read.instructions.function, read.instructions.line) == ("_instructions", 1)
    assert [one.name for one in read.declarations] == ["a"]
