"""Role: a Markdown file that defines how a model answers in a conversation without an agent.

    ---
    model: openai:gpt-4o-mini
    temperature: 0.2
    enabled_tools: fs_cat,fs_ls
    ---
    You translate into __ARG1__. Output the translation alone.
    ### INPUT:
    good morning
    ### OUTPUT:
    buongiorno

The file format is Loki's. Both the front matter between two lines of dashes and the text after it are optional. The
text (or the key `prompt`) is one of three kinds:

- an **embedded prompt**, if it contains `__INPUT__`: the user's words are inserted there, and the result is the user's
  turn;
- a **few-shot prompt**, if it contains pairs of `### INPUT:` and `### OUTPUT:`: the pairs become earlier turns;
- else a **system prompt**.

If a file has both, the text is the system prompt, and `prompt` is one of the three. `NAME#one#two` fills `__ARG1__`
and `__ARG2__`. `{{__os__}}` and the other special variables of agents are replaced when a run begins
(`actors.work.roles`).

Dashes are front matter only at the beginning of the file, so a rule further down is part of the text.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from .chat import Models, ReasoningEffort, ThinkingBudget
from .errors import UsageError
from .graph import INJECT_SKILLS, SKILL_INSTRUCTIONS, Count
from .problems import Problem, errors_in
from .reading import Reading, in_file_order
from .schema import no_effect, schema_of
from .tree import Mapping
from .yaml_tree import FrontMatter, Source, parse_mapping, split_front_matter

INPUT = "__INPUT__"
MOST_CHARACTERS = 1_000_000
"""Maximum of characters in a prompt."""

MOST_ARGUMENTS = 99

# aichat's placeholders. Two digits, so `MOST_ARGUMENTS` is 99.
_ARGUMENT = re.compile(r"__ARG([1-9][0-9]?)__")
_CASE = re.compile(r"^[ \t]*### (INPUT|OUTPUT):", re.MULTILINE)

Names: TypeAlias = str | tuple[str, ...]
"""Names separated by commas, or a list of names."""


class RoleFile(msgspec.Struct, frozen=True, kw_only=True):
    """Front matter of a role. Missing keys have the values that apply without a role."""

    name: Annotated[str | None, Meta(description="A note: the file's name is the role's.")] = None
    description: Annotated[str, Meta(description="Description in a line, shown in lists of roles.")] = ""
    model: Models = None
    temperature: float | None = None
    top_p: float | None = None
    reasoning_effort: Annotated[ReasoningEffort | None, Meta(description="Reasoning effort of the model.")] = None
    thinking_budget: Annotated[ThinkingBudget | None, Meta(description="Reasoning budget in tokens.")] = None
    enabled_tools: Annotated[Names | None, Meta(description="Tools and aliases it may call, or `all`.")] = None
    use_tools: Annotated[Names | None, Meta(description="What aichat calls `enabled_tools`.")] = None
    enabled_mcp_servers: Annotated[Names | None, Meta(description="MCP servers and aliases, or `all`.")] = None
    prompt: Annotated[str | None, Meta(description="The prompt; the text of the file then is the system prompt.")] = (
        None
    )
    auto_continue: Annotated[
        bool | None, Meta(description="Continue automatically while the todo list has open items.")
    ] = None
    max_auto_continues: Annotated[Count | None, Meta(description="Maximum number of automatic continuations.")] = None
    inject_todo_instructions: bool | None = None
    continuation_prompt: str | None = None
    memory: Annotated[bool | None, no_effect("memory across conversations is not supported")] = None
    skills_enabled: Annotated[bool | None, Meta(description="Allow it to read skills.")] = None
    enabled_skills: Annotated[Names | None, Meta(description="The only skills it may read.")] = None
    inject_skill_instructions: Annotated[bool | None, INJECT_SKILLS] = None
    skill_instructions: Annotated[str | None, SKILL_INSTRUCTIONS] = None
    enabled_macros: Annotated[Names | None, no_effect("models can't run macros")] = None


class Example(msgspec.Struct, frozen=True):
    """Pair of a few-shot prompt."""

    input: str
    output: str


class Role(RoleFile, frozen=True, kw_only=True):
    """Role that was read.

    Attributes:
        called: its name, without arguments.
        text: text after the front matter.
        problems: warnings about its file.
    """

    called: str
    text: str = ""
    source: Source = Source()
    problems: tuple[Problem, ...] = ()

    @property
    def template(self) -> str:
        """Template that is embedded, few-shot or a system prompt: `prompt`, else the text."""
        return self.prompt.strip() if self.prompt and self.prompt.strip() else self.text

    @property
    def embedded(self) -> str | None:
        """Template into which the user's words are inserted; None for other kinds of roles."""
        return self.template if INPUT in self.template else None

    @property
    def system(self) -> str:
        """System prompt, without an embedded prompt and without examples; "" for none."""
        parts = [self.text] if self.template != self.text else []
        if self.embedded is None:
            parts.append(split_cases(self.template)[0])
        return "\n\n".join(part for part in parts if part)

    @property
    def examples(self) -> tuple[Example, ...]:
        """Pairs of a few-shot prompt, in order."""
        return () if self.embedded is not None else split_cases(self.template)[1]

    @property
    def kind(self) -> str:
        """Kind of its template, as a text."""
        if self.embedded is not None:
            return "embedded prompt"
        if self.examples:
            return "few-shot prompt"
        return "system prompt" if self.template else "settings"

    @property
    def arguments(self) -> int:
        """Number of arguments: the highest N of `__ARGN__` in the text and the prompt."""
        found = _ARGUMENT.findall(f"{self.text}\n{self.prompt or ''}")
        return max(map(int, found), default=0)

    @property
    def tools(self) -> tuple[str, ...] | None:
        """Tools that it names, under either name of the key; None if it names none."""
        given = self.enabled_tools if self.enabled_tools is not None else self.use_tools
        return None if given is None else names_of(given)

    @property
    def servers(self) -> tuple[str, ...] | None:
        """MCP servers that it names; None if it names none."""
        return None if self.enabled_mcp_servers is None else names_of(self.enabled_mcp_servers)

    def with_arguments(self, given: tuple[str, ...]) -> Role:
        """Return the role with its arguments inserted; their contents are never scanned again.

        Raises:
            UsageError: the number of arguments is wrong; one contains `{{`, which would name a variable; or the
                arguments change the kind of the role: `__INPUT__` in an argument would embed the prompt.
        """
        if len(given) != self.arguments:
            usage = "#".join([self.called, *(f"ARG{number}" for number in range(1, self.arguments + 1))])
            takes = f"takes {self.arguments or 'no'} argument{'' if self.arguments == 1 else 's'}"
            raise UsageError(f"role '{self.called}' {takes}, not {len(given)}: write it as {usage}")
        if any("{{" in text for text in given):
            raise UsageError(f"an argument of role '{self.called}' holds '{{{{', which is for variables of the file")
        if not given:
            return self

        def filled(text: str) -> str:
            return _ARGUMENT.sub(lambda found: given[int(found[1]) - 1], text)

        prompt = None if self.prompt is None else filled(self.prompt)
        made = msgspec.structs.replace(self, text=filled(self.text), prompt=prompt)
        if _marks_of(made) != _marks_of(self):  # Compared as a whole: an argument may complete a marker.
            raise UsageError(
                f"the arguments of role '{self.called}' change what kind of prompt it is, or its variables; leave"
                f" `{INPUT}`, `### INPUT:`, `### OUTPUT:` and braces out of them"
            )
        return made


def read_role(text: str, file: str, called: str, *, strict: bool = False) -> tuple[Role | None, list[Problem]]:
    """Return the role of a file's text, and all problems by line; None if one of them is an error.

    Args:
        file: name of the text in problems.
        called: name of the role.
        strict: treat warnings (unknown keys) as errors.
    """
    source = Source(file)  # Without the text, which as a whole is not YAML.
    if len(text) > MOST_CHARACTERS:
        expected = f"at most {MOST_CHARACTERS} characters"
        told = source.problem("error", "too_long", f"a role of {len(text)} characters is too long", expected=expected)
        return None, [told]
    if "\0" in text:
        return None, [source.problem("error", "not_text", "the file is not text: it holds the character NUL")]
    halves, problems = _parted(text.removeprefix("\ufeff"), source)
    reading = Reading(file)
    root: Mapping | None = Mapping({}, 1, 1)
    if halves.head.strip():
        root, found = parse_mapping("\n" * halves.line + halves.head, file)
        problems += [_of_front_matter(problem) for problem in found if problem.code != "empty_file"]
        if root is None and not errors_in(problems):
            root = Mapping({}, 1, 1)
    if root is None:
        return None, in_file_order(problems, strict=strict)
    given = {"called": called, "text": halves.body.strip(), "source": source}
    role = reading.fill(
        Role, root, what="a role", given=given, hidden=("called", "text", "source", "problems"), elsewhere=_ELSEWHERE
    )
    problems += [*reading.problems, *_oddities(role, root, source)]
    problems = in_file_order(problems, strict=strict)
    return (None if errors_in(problems) else msgspec.structs.replace(role, problems=tuple(problems))), problems


def role_of_prompt(text: str) -> Role:
    """Return the role of a prompt without a file, for one conversation. It has no front matter.

    Raises:
        UsageError: the text is longer than a role may be.
    """
    if len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"a prompt of {len(text)} characters for a role is too long (expected at most {MOST_CHARACTERS})"
        )
    # Loki's name for a role without a file.
    return Role(called="temp", text=text.strip())


def split_name(name: str) -> tuple[str, tuple[str, ...]]:
    """Split a role's name from its arguments: `translate#it` is `translate` with `it`."""
    called, *given = name.split("#")
    return called, tuple(given)


def names_of(given: Names) -> tuple[str, ...]:
    """Return the names of a list, or of a text with commas; surrounding blanks and empty names are dropped."""
    parts = given.split(",") if isinstance(given, str) else given
    return tuple(name.strip() for name in parts if name.strip())


def split_cases(template: str) -> tuple[str, tuple[Example, ...]]:
    """Return the system prompt of a template, and its pairs; without complete pairs all of it is the system prompt."""
    if _uneven(template) is not None:
        return template, ()
    system, *parts = _CASE.split(template)
    texts = [text.strip() for text in parts[1::2]]
    return system.strip(), tuple(Example(*pair) for pair in zip(texts[::2], texts[1::2], strict=True))


def role_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a role's front matter, for editors."""
    return schema_of(RoleFile, title="Callboard role (front matter)")


def _uneven(template: str) -> str | None:
    """Return why the markers of a template are not pairs; None if they are, or if there are none."""
    marks = [mark[1] for mark in _CASE.finditer(template)]
    for number, mark in enumerate(marks):
        if mark != ("INPUT", "OUTPUT")[number % 2]:
            return f"`### {mark}:` is written where `### {('INPUT', 'OUTPUT')[number % 2]}:` is expected"
    return "the last `### INPUT:` has no `### OUTPUT:`" if len(marks) % 2 else None


def _marks_of(role: Role) -> tuple[object, ...]:
    """Return the features of a role that determine its kind and its variables."""
    whole = f"{role.text}\n{role.prompt or ''}"
    cases = [mark[1] for mark in _CASE.finditer(role.template)]
    return bool(role.prompt and role.prompt.strip()), role.template.count(INPUT), cases, whole.count("{{")


def _parted(text: str, source: Source) -> tuple[FrontMatter, list[Problem]]:
    """Return the front matter and the text after it, and warnings about them."""
    halves = split_front_matter(text)
    if not halves.open:
        return halves, []
    message = f"the front matter that begins in line {halves.open} does not end, so all of the file is the prompt"
    hint = "write a line `---` after the last key."
    told = source.problem("warning", "open_front_matter", message, hint=hint)
    return halves, [msgspec.structs.replace(told, line=halves.open, column=1)]


def _of_front_matter(problem: Problem) -> Problem:
    """Return the problem reworded for a role, whose file is more than its front matter."""
    if problem.code != "not_a_mapping":
        return problem
    return msgspec.structs.replace(
        problem,
        message=problem.message.replace("the file holds", "the front matter holds"),
        expected="a mapping between the two lines of dashes",
        hint="Hint: write lines such as `temperature: 0.2`, or put text before the first line of dashes.",
    )


def _oddities(role: Role, root: Mapping, source: Source) -> list[Problem]:
    """Return warnings about contents that are valid but probably not intended."""
    found: list[Problem] = []

    def warn(code: str, message: str, key: str, hint: str) -> None:
        found.append(source.problem("warning", code, message, hint=hint))
        entry = root.entries.get(key)
        place = (entry.line, entry.column) if entry is not None else (0, 0)
        found[-1] = msgspec.structs.replace(found[-1], line=place[0], column=place[1], key=key or None)

    if role.use_tools is not None:
        both = role.enabled_tools is not None
        text = "`use_tools` is ignored beside `enabled_tools`" if both else "`use_tools` is read as `enabled_tools`"
        warn("old_key", text, "use_tools", "call it `enabled_tools`.")
    if INPUT in role.text and role.template != role.text:
        text = f"`{INPUT}` is not replaced: with the key `prompt`, the text of the file is the system prompt"
        warn("input_in_system", text, "prompt", f"put `{INPUT}` into `prompt`.")
    if role.embedded is None and (why := _uneven(role.template)) is not None:
        text = f"{why}, so the whole prompt is a system prompt"
        warn("uneven_cases", text, "", "write pairs: `### INPUT:` and then `### OUTPUT:`, each on a line of its own.")
    return found


_OF_AGENTS = ("instructions", "global_tools", "mcp_servers", "documents", "variables")
_ELSEWHERE = {**dict.fromkeys(_OF_AGENTS, "an agent, in a config.yaml"), "steps": "a macro, in macros/NAME.yaml"}
