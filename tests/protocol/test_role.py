"""The files of roles: front matter, the three kinds of prompts, arguments; and files that strangers wrote."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages import has_message, says

from callboard.protocol.errors import UsageError
from callboard.protocol.problems import Problem
from callboard.protocol.role import (
    MOST_CHARACTERS,
    Example,
    Role,
    names_of,
    read_role,
    role_of_prompt,
    role_schema,
    split_name,
)

RESUME = """\
---
# a comment
name: resume-builder
model: openai:gpt-4o
temperature: 0.2
top_p: 0
enabled_tools: fs_ls,fs_cat
enabled_mcp_servers: github
---
<!-- a comment -->
You write resumes.

---
A rule is text.
"""

CASES = """\
Code only.
### INPUT:
sleep
### OUTPUT:
```js
await sleep()
```
"""


def read(text: str) -> tuple[Role, list[Problem]]:
    role, problems = read_role(text, "roles/r.md", "r")
    assert role is not None, problems
    return role, problems


def refused(text: str) -> list[Problem]:
    role, problems = read_role(text, "roles/r.md", "r")
    assert role is None
    return problems


def test_the_front_matter_is_read_and_the_rest_is_the_system_prompt() -> None:
    role, problems = read(RESUME)
    assert problems == []
    assert (role.called, role.name, role.model) == ("r", "resume-builder", "openai:gpt-4o")
    assert (role.temperature, role.top_p) == (0.2, 0)
    assert (role.tools, role.servers) == (("fs_ls", "fs_cat"), ("github",))
    assert role.system == "<!-- a comment -->\nYou write resumes.\n\n---\nA rule is text."
    assert (role.kind, role.examples, role.embedded) == ("system prompt", (), None)


def test_every_key_of_lokis_is_read() -> None:
    keys = "auto_continue: true\nmax_auto_continues: 3\ninject_todo_instructions: false\ncontinuation_prompt: On!"
    role, problems = read(f"---\n{keys}\nreasoning_effort: low\nprompt: null\n---\n")
    assert problems == []
    assert (role.auto_continue, role.max_auto_continues, role.inject_todo_instructions) == (True, 3, False)
    assert (role.continuation_prompt, role.reasoning_effort, role.kind) == ("On!", "low", "settings")


@pytest.mark.parametrize("text", ["", "\n\n", "---\n---\n", "---\n# only a comment\n---", "-----\r\n-----\r\n"])
def test_a_role_may_say_nothing(text: str) -> None:
    role, problems = read(text)
    assert (problems, role.kind, role.system) == ([], "settings", "")


def test_a_prompt_with_the_place_of_the_input_is_embedded() -> None:
    role, _ = read("convert __INPUT__ to TOML")
    assert (role.kind, role.embedded, role.system) == ("embedded prompt", "convert __INPUT__ to TOML", "")


def test_with_a_prompt_in_the_front_matter_the_text_is_the_system_prompt() -> None:
    role, problems = read("---\nprompt: convert __INPUT__ to TOML\n---\nOutput code.\n")
    assert (problems, role.embedded, role.system) == ([], "convert __INPUT__ to TOML", "Output code.")
    role, _ = read("---\nprompt: convert my words to emojis\n---\n")
    assert (role.kind, role.system) == ("system prompt", "convert my words to emojis")
    role, _ = read("---\nprompt: Then B.\n---\nFirst A.")
    assert role.system == "First A.\n\nThen B."
    _, (told,) = read("---\ntop_p: 1\nprompt: B\n---\nA __INPUT__")
    assert (told.code, told.line, told.key) == ("input_in_system", 3, "prompt")


def test_pairs_of_input_and_output_are_examples() -> None:
    role, problems = read(CASES)
    assert (problems, role.kind, role.system) == ([], "few-shot prompt", "Code only.")
    assert role.examples == (Example("sleep", "```js\nawait sleep()\n```"),)
    role, _ = read("---\nprompt: |-\n  " + CASES.replace("\n", "\n  ") + "\n---\nBe quick.")
    assert (role.system, len(role.examples)) == ("Be quick.\n\nCode only.", 1)
    role, _ = read("### INPUT: a\n### OUTPUT: b\n### INPUT: c\n### OUTPUT: d ### INPUT: of a line\n")
    assert (role.system, role.examples) == ("", (Example("a", "b"), Example("c", "d ### INPUT: of a line")))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("System\n### INPUT:\none\n", "the last `### INPUT:` has no `### OUTPUT:`"),
        ("### OUTPUT:\none\n### INPUT:\n", "`### OUTPUT:` is written where `### INPUT:` is expected"),
        ("### INPUT:\n### INPUT:\n", "`### INPUT:` is written where `### OUTPUT:` is expected"),
    ],
)
def test_half_a_pair_is_told_and_is_a_system_prompt(text: str, words: str) -> None:
    role, (told,) = read(text)
    assert (role.examples, role.system) == ((), text.strip())
    assert told.severity == "warning"
    assert words in told.message


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("---\n- a\n- b\n---\nx", 2, "the front matter holds a list"),
        ("---\njust words\n---\nx", 2, "the front matter holds the text"),
        ("---\ntop_p: 1\ntemperature: hot\n---\nx", 3, "`temperature` is the text 'hot'"),
        ("\n---\nmodel: [\n---\nx", 4, "YAML parsing error"),
        ("---\nmodel: a\nmodel: b\n---\nx", 3, "duplicate entry with key 'model'"),
        ("---\nenabled_tools: {a: b}\n---\nx", 2, "`enabled_tools` is"),
        ("---\nmax_auto_continues: -1\n---\nx", 2, "`max_auto_continues` is the number -1"),
        ("---\nreasoning_effort: huge\n---\nx", 2, "unknown variant `huge`"),
        ("---\na: &a [*a]\n---\nx", 2, ""),
    ],
)
def test_an_error_has_its_line(text: str, line: int, words: str) -> None:
    first = next(problem for problem in refused(text) if problem.severity == "error")
    assert (first.file, first.line) == ("roles/r.md", line)
    assert words in first.message


def test_unknown_and_old_keys_are_warnings() -> None:
    role, problems = read("---\ntemperatur: 1\ninstructions: x\nuse_tools: [fs_cat]\nmemory: true\nx-mine: 1\n---\n")
    assert [(each.line, each.code) for each in problems] == [
        (2, "unknown_key"),
        (3, "unknown_key"),
        (4, "old_key"),
        (5, "ignored_key"),
    ]
    assert has_message(problems[0].hint, "protocol.problems.suggestion", name="temperature")
    assert role.tools == ("fs_cat",)
    assert role.problems == tuple(problems)
    assert read("---\nuse_tools: a\nenabled_tools: b\n---\n")[0].tools == ("b",)
    assert read_role("---\ntemperatur: 1\n---\n", "r.md", "r", strict=True)[0] is None


def test_front_matter_without_an_end_is_text_and_told() -> None:
    role, (told,) = read("---\ntemperature: 1\n\nYou are")
    assert (told.code, told.line) == ("open_front_matter", 1)
    assert role.system.startswith("---\ntemperature: 1")


def test_what_is_no_text_or_no_prompt_is_refused() -> None:
    assert [each.code for each in refused("a\0b")] == ["not_text"]
    assert [each.code for each in refused("a" * (MOST_CHARACTERS + 1))] == ["too_long"]


def test_marks_at_the_beginning_of_a_file_and_carriage_returns_do_no_harm() -> None:
    role, problems = read("\ufeff---\r\ntemperature: 1\r\n---\r\nYou are\r\n")
    assert (problems, role.temperature, role.system) == ([], 1, "You are")


def test_no_tools_is_something_else_than_nothing_said() -> None:
    assert read("---\nenabled_tools: []\nenabled_mcp_servers: ''\n---\n")[0].tools == ()
    assert read("---\nenabled_tools:\n---\n")[0].tools is None
    assert names_of(" a, ,b ") == names_of(("a", "b ")) == ("a", "b")


def test_arguments_are_put_in_once() -> None:
    role, _ = read("---\nprompt: 'from __ARG1__ to __ARG2__: __INPUT__'\n---\nYou know __ARG2__.")
    assert role.arguments == 2
    filled = role.with_arguments(("__ARG2__", "it"))
    assert (filled.embedded, filled.system) == ("from __ARG2__ to it: __INPUT__", "You know it.")
    assert split_name("tr#de#it") == ("tr", ("de", "it"))
    assert split_name("tr") == ("tr", ())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            (),
            says(
                "protocol.role.Role.with_arguments", called="r", takes="takes 2 arguments", given=0, usage="r#ARG1#ARG2"
            ),
        ),
        (("a", "b", "c"), says("protocol.role.Role.with_arguments", called="r", takes="takes 2 arguments", given=3)),
        (("a", "{{__cwd__}}"), "an argument of role 'r' holds '{{'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(given: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("{", r"\{")):
        read("__ARG1__ __ARG2__")[0].with_arguments(given)
    with pytest.raises(
        UsageError,
        match=says("protocol.role.Role.with_arguments", called="r", takes="takes no arguments", given=1, usage="r"),
    ):
        read("none")[0].with_arguments(("a",))


def test_a_text_makes_a_role_without_front_matter() -> None:
    role = role_of_prompt("---\ntop_p: 1\n---\nYou are")
    assert (role.called, role.top_p, role.system) == ("temp", None, "---\ntop_p: 1\n---\nYou are")


def test_the_schema_has_the_keys_and_nothing_of_ours() -> None:
    keys = role_schema()["properties"]
    assert {"model", "enabled_tools", "prompt"} < keys.keys()
    assert "called" not in keys


@given(st.text(alphabet=st.sampled_from("-\n#: INPUT_ARG1[]{}&*!|>'\"ax\t\r"), max_size=60))
@settings(max_examples=300, deadline=None)
def test_no_text_breaks_the_reader(text: str) -> None:
    role, problems = read_role(text, "r.md", "r")
    assert (role is None) == any(each.severity == "error" for each in problems)
    if role is not None:
        assert role.kind
        assert role.system is not None


def test_a_text_that_is_too_long_makes_no_role() -> None:
    assert role_of_prompt("x" * MOST_CHARACTERS).system
    with pytest.raises(UsageError, match=says("protocol.role.role_of_prompt", text=1000001)):
        role_of_prompt("x" * (MOST_CHARACTERS + 1))


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("You translate into __ARG1__.", ("it __INPUT__",)),
        ("You translate into __ARG1____ARG2__.", ("__INP", "UT__")),
        ("You translate into __ARG1__", ("it\n### INPUT:\nhi\n### OUTPUT:\nciao",)),
        ("Code.\n### __ARG1__:\na\n### __ARG2__:\nb", ("INPUT", "OUTPUT")),
        ("Code.\n__ARG1__ INPUT:\na\n__ARG1__ OUTPUT:\nb", ("###",)),
        ("You are in {__ARG1__", ("{__cwd__}}",)),
        ("---\nprompt: __ARG1__\n---\nConvert __INPUT__.", ("",)),
    ],
)
def test_arguments_never_make_another_kind_of_prompt(text: str, given: tuple[str, ...]) -> None:
    role = read(text)[0]
    with pytest.raises(UsageError, match=says("protocol.role.Role.with_arguments.3", called="r")):
        role.with_arguments(given)
    assert role.with_arguments(("it",) * len(given)).kind == role.kind


def test_arguments_may_hold_what_is_no_mark_where_it_stands() -> None:
    role = read("Explain __ARG1__: __INPUT__")[0]
    assert role.with_arguments(("what ### INPUT: means",)).embedded == "Explain what ### INPUT: means: __INPUT__"
