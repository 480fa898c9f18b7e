"""SKILL.md by the open standard. The cases are those that its own validator (skills-ref) is tested with."""

from __future__ import annotations

import unicodedata

import pytest

from callboard.protocol.other_programs import arguments_back, arguments_of, ours, patterns_in, split_pattern, theirs
from callboard.protocol.skill import read_skill
from callboard.protocol.yaml_tree import split_front_matter

CASES: list[tuple[str, str, str, str]] = [
    ("valid", "my-skill", "name: my-skill\ndescription: A test skill", ""),
    ("upper case", "MySkill", "name: MySkill\ndescription: x", "lowercase"),
    ("too long", "a" * 70, f"name: {'a' * 70}\ndescription: x", "70 characters"),
    ("leading hyphen", "-my-skill", "name: -my-skill\ndescription: x", "begins or ends with a hyphen"),
    ("trailing hyphen", "my-", "name: my-\ndescription: x", "begins or ends with a hyphen"),
    ("two hyphens", "my--skill", "name: my--skill\ndescription: x", "two hyphens"),
    ("other characters", "my_skill", "name: my_skill\ndescription: x", "other than letters"),
    ("another directory", "wrong-name", "name: correct-name\ndescription: x", "make them equal"),
    ("unknown field", "my-skill", "name: my-skill\ndescription: x\nunknown_field: y", "unknown_field"),
    (
        "all fields",
        "my-skill",
        "name: my-skill\ndescription: x\nlicense: MIT\ncompatibility: git\nallowed-tools: Bash\nmetadata: {a: b}",
        "",
    ),
    ("chinese", "技能", "name: 技能\ndescription: x", ""),
    ("russian", "мой-навык", "name: мой-навык\ndescription: x", ""),
    ("russian upper case", "НАВЫК", "name: НАВЫК\ndescription: x", "lowercase"),
    ("long description", "my-skill", f"name: my-skill\ndescription: {'x' * 1100}", "1100 characters"),
    ("long compatibility", "my-skill", f"name: my-skill\ndescription: x\ncompatibility: {'x' * 550}", "550"),
    ("no name", "my-skill", "description: x", "name"),
    ("no description", "my-skill", "name: my-skill", "description"),
    ("empty name", "my-skill", 'name: ""\ndescription: x', "`name`"),
    ("empty description", "my-skill", 'name: my-skill\ndescription: ""', "empty"),
    ("a number", "12", "name: 12\ndescription: 4", ""),
]


@pytest.mark.parametrize(("directory", "head", "wrong"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_valid_is_what_the_standard_calls_so(directory: str, head: str, wrong: str) -> None:
    skill, problems = read_skill(f"---\n{head}\n---\n# Do it\n", "SKILL.md", f"/x/{directory}", strict=True)
    assert (skill is None) == bool(wrong), problems
    if wrong:
        assert any(wrong in str(problem) for problem in problems), problems
        assert all(problem.line for problem in problems)


def test_names_are_compared_in_one_normal_form() -> None:
    composed, apart = "café", unicodedata.normalize("NFD", "café")
    skill, problems = read_skill(f"---\nname: {apart}\ndescription: x\n---\n", "f", f"/x/{composed}", strict=True)
    assert skill is not None, problems


@pytest.mark.parametrize(
    ("head", "directory", "name"),
    [
        ("description: x\nenabled_tools: git_command", "git-master", "git-master"),
        ("name: Writing Hookify Rules\ndescription: x\nversion: 0.1.0", "writing-rules", "writing-rules"),
        ("name: postgresql-table-design\ndescription: x", "postgresql", "postgresql"),
        ("name: my_skill\ndescription: x", "My Skill_2", "my-skill-2"),
    ],
)
def test_a_skill_of_another_program_is_known_by_its_directory(head: str, directory: str, name: str) -> None:
    skill, problems = read_skill(f"---\n{head}\n---\nDo.", "SKILL.md", f"/x/{directory}")
    assert skill is not None, problems
    assert skill.name == name
    assert problems
    assert {problem.severity for problem in problems} == {"warning"}


@pytest.mark.parametrize(
    "text", ["# No front matter", "---\nname: x\ndescription: y\n", "---\n- a\n---\n", "---\n---\n", ""]
)
def test_a_file_without_front_matter_is_no_skill(text: str) -> None:
    skill, problems = read_skill(text, "SKILL.md", "/x/x")
    assert skill is None
    assert problems


def test_what_is_only_odd_does_not_keep_a_skill_from_being_used() -> None:
    head = f"name: a\ndescription: {'x' * 1100}\nwhen_to_use: never\nmodel: opus"
    skill, problems = read_skill(f"---\n{head}\n---\nDo.", "SKILL.md", "/x/a")
    assert skill is not None
    assert len(problems) == 3
    assert {problem.severity for problem in problems} == {"warning"}


def test_a_byte_order_mark_and_windows_line_ends_are_no_trouble() -> None:
    text = "\ufeff---\r\nname: a\r\ndescription: x\r\n---\r\nDo.\r\n"
    skill, problems = read_skill(text, "SKILL.md", "/x/a", strict=True)
    assert skill is not None, problems
    assert skill.text == "Do."


@pytest.mark.parametrize(
    ("given", "patterns"),
    [
        ("Bash(git:*) Bash(jq:*) Read", ("Bash(git:*)", "Bash(jq:*)", "Read")),
        ("Bash(git add:*), Read,Write", ("Bash(git add:*)", "Read", "Write")),
        ("[Read, 'Bash(a b)']", ("Read", "Bash(a b)")),
        ("", ()),
    ],
)
def test_allowed_tools_is_a_text_or_a_list(given: str, patterns: tuple[str, ...]) -> None:
    head = f"name: a\ndescription: x\nallowed-tools: {given or chr(39) * 2}"
    skill, problems = read_skill(f"---\n{head}\n---\n", "SKILL.md", "/x/a", strict=True)
    assert skill is not None, problems
    assert skill.allows == patterns


def test_names_of_tools_go_both_ways() -> None:
    assert theirs("execute_command") == "Bash"
    assert theirs("fs_patch") == "Edit"
    assert theirs("todo__add") == "TodoWrite"
    assert theirs("own_tool") == "own_tool"
    assert theirs("time__now", mcp=True) == "mcp__time__now"
    assert ours("Read") == ("fs_cat", "fs_read")
    assert ours("mcp__time__now") == ("time__now",)
    assert ours("fs_cat") == ("fs_cat",)
    assert arguments_back("fs_write", arguments_of("fs_write", {"path": "a", "contents": "b"})) == {
        "path": "a",
        "contents": "b",
    }
    assert split_pattern("Bash(git add:*)") == ("Bash", "git add*")
    assert split_pattern("Bash(*)") == ("Bash", "")
    assert split_pattern("Read") == ("Read", "")
    assert patterns_in("a(b, c) d") == ("a(b, c)", "d")


def test_front_matter_is_at_the_beginning_or_nowhere() -> None:
    assert split_front_matter("text\n---\na: 1\n---\n").head == ""
    assert split_front_matter("\n\n---\na: 1\n---\nrest").line == 3
    assert split_front_matter("---\na: 1\n").open == 1
