"""Bash tools: argc's comments, read line by line as argc does.

    # @describe Says hello.                      # @cmd Says hello.
    # @option --name! Whom to greet.      or     # @option --name! Whom to greet.
    main() { ... }                               greet() { ... }

A tag stands at the beginning of a line. Comment lines below it without a tag go on with its description, up to the next
line that is no comment. Everything before the first `@cmd` is the file's own: of a global tool, these are the arguments
of `main`; of an agent's file, only `@env` and `@meta` count for every function, and options where the file says
`@meta inherit-flag-options`. Each `@cmd` and the tags below it belong to the next function. What argc or Loki generated
into the file is passed over, and so are here-documents.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from .....protocol.problems import did_you_mean
from .....protocol.repeats import Repeats
from .argc import Spec, read_argument, read_variable
from .declaration import Declaration, EnvVar
from .repeats import read_repeats
from .schemas import parameters
from .script import Script, Unreadable

_TAG = re.compile(r"#+\s*@([A-Za-z][\w-]*)(?:\s+(.*))?$")
_COMMENT = re.compile(r"#(?![#!])\s?(.*)$")
_FUNCTION = re.compile(r"\s*(?:function\s+([^\s(){}]+)|([^\s(){}=#'\"$`;&|<>]+)\s*\(\s*\))")
_HEREDOC = re.compile(r"(?<!<)<<(-?)\s*\\?(?P<quote>['\"]?)(?P<word>[A-Za-z_]\w*)(?P=quote)")
_GENERATED = re.compile(r"#\s*ARGC-BUILD\s*\{\s*$")
_GENERATED_END = re.compile(r"#\s*\}\s*ARGC-BUILD\s*$")

TAGS = ("describe", "cmd", "alias", "arg", "option", "flag", "env", "meta")


class _Tag(msgspec.Struct, frozen=True):
    name: str
    text: str
    line: int
    offset: int
    more: str = ""


class _Function(msgspec.Struct, frozen=True):
    name: str
    line: int


class _Block(msgspec.Struct):
    line: int = 0
    description: str | None = None
    arguments: list[Spec] = msgspec.field(default_factory=list)
    environment: list[EnvVar] = msgspec.field(default_factory=list)
    requires: list[str] = msgspec.field(default_factory=list)
    inherits: bool = False
    repeats: Repeats | None = None
    broken: list[Unreadable] = msgspec.field(default_factory=list)


def read_bash(script: Script, *, agent: bool) -> list[Declaration]:
    """Every tool of the file; what is wrong is noted at `script`."""
    root, functions, built = _blocks(script, agent=agent)
    if not agent:
        main = functions.get("main")
        if main is None:
            script.error(
                "no_entry",
                "the file has no function 'main'",
                0,
                hint="a global tool is a file with a function `main() { ... }`; "
                "a file with several functions is an agent's tools.sh",
            )
            return []
        line, block = main
        one = _declaration(script, script.file.stem, "main", line, root, block or _Block(), whole=True)
        return [] if one is None else [msgspec.structs.replace(one, built=built)]
    found: list[Declaration] = []
    for name, (line, block) in functions.items():
        if name == "_instructions":
            one = _declaration(script, name, name, line, root, block or _Block(), whole=False)
        elif block is not None and not name.startswith("_"):
            one = _declaration(script, name, name, line, root, block, whole=False)
        else:
            continue
        if one is not None:
            found.append(msgspec.structs.replace(one, built=built))
    if not found and not script.problems:
        script.warning(
            "no_tools",
            "the file declares no tools",
            0,
            hint="write `# @cmd What it does` above each function that the model may call",
        )
    return found


def _declaration(
    script: Script, name: str, function: str, line: int, root: _Block, own: _Block, *, whole: bool
) -> Declaration | None:
    fine = name == "_instructions" or script.usable_name(name, line)
    broken = own.broken + (root.broken if whole else [])
    for wrong in broken:
        script.note(wrong)
    description = (root.description if whole else None) or own.description or ""
    if not description and name != "_instructions":
        script.error(
            "no_description",
            f"Tool definition missing or empty description: {name}",
            own.line or line,
            expected="`# @describe What it does`" if whole else "`# @cmd What it does`",
        )
        fine = False
    inherited = root.arguments if whole else [one for one in root.arguments if one.argument.kind != "positional"]
    specs = [*(inherited if whole or root.inherits else ()), *own.arguments]
    twice = {spec.argument.name for spec in specs}
    for spec in specs:
        if spec.argument.name in twice:
            twice.discard(spec.argument.name)
            continue
        script.error("argument_twice", f"two arguments of '{name}' are called '{spec.argument.name}'", own.line or line)
        fine = False
    if broken or not fine:
        return None
    return Declaration(
        name=name,
        description=description,
        parameters=parameters(
            {spec.argument.name: spec.in_json() for spec in specs},
            [spec.argument.name for spec in specs if spec.needed],
        ),
        file=script.file,
        function=function,
        line=line,
        language="bash",
        interpreter=script.interpreter,
        requires=tuple(dict.fromkeys([*root.requires, *own.requires])),
        arguments=tuple(spec.argument for spec in specs),
        environment=(*root.environment, *own.environment),
        repeats=own.repeats or root.repeats,
    )


# --- lines ------------------------------------------------------------------------------------------------


def _blocks(script: Script, *, agent: bool) -> tuple[_Block, dict[str, tuple[int, _Block | None]], bool]:
    """The file's block, each function with its line and its block (None without a `@cmd`), and whether it is built."""
    root = _Block()
    command: _Block | None = None
    functions: dict[str, tuple[int, _Block | None]] = {}
    for item in _items(script):
        if isinstance(item, _Function):
            if command is not None and functions.get(item.name, (0, None))[1] is not None:
                script.error("declared_twice", f"the command '{item.name}' is declared twice", command.line)
            if command is not None or item.name not in functions:
                functions[item.name] = (item.line, command)
            command = None
        elif item.name == "cmd":
            _unclaimed(script, command)
            command = _Block(line=item.line, description=f"{item.text}\n{item.more}".strip())
        else:
            stray = agent and command is None and functions and item.name in ("option", "flag", "arg")
            if stray:
                script.warning(
                    "stray_tag",
                    f"@{item.name} belongs to no command",
                    item.line,
                    item.offset,
                    hint="is a `# @cmd` missing?",
                )
            else:
                _add(script, command or root, item)
    _unclaimed(script, command)
    built = any(_GENERATED.match(line) for line in script.lines)
    return root, functions, built


def _unclaimed(script: Script, command: _Block | None) -> None:
    if command is not None:
        script.error("no_function", "no function follows this @cmd", command.line, expected="`name() { ... }` below it")


def _add(script: Script, block: _Block, tag: _Tag) -> None:
    offset = tag.offset + len(f"@{tag.name} ")
    if tag.name == "describe":
        block.description = f"{tag.text}\n{tag.more}".strip()
    elif tag.name == "meta":
        key, _, value = tag.text.partition(" ")
        if key == "require-tools":
            block.requires.extend(part for part in re.split(r"[,\s]+", value) if part)
        elif key == "inherit-flag-options":
            block.inherits = True
        elif key == "effect":
            block.repeats = read_repeats(script, value.strip(), tag.line)
    elif tag.name in ("option", "flag", "arg", "env"):
        try:
            if tag.name == "env":
                block.environment.append(read_variable(tag.text, tag.more, tag.line, offset))
                return
            spec = read_argument(tag.name, tag.text, tag.more, tag.line, offset)
        except Unreadable as wrong:
            block.broken.append(wrong)
            return
        block.arguments.append(spec)
        script.doubt_name(spec.argument.name, tag.line, offset)
        if spec.doubt:
            script.warning("argc_value", f"@{tag.name} {spec.argument.name}: {spec.doubt}", tag.line, offset)
    elif tag.name not in TAGS:
        script.warning(
            "unknown_tag", f"unknown tag @{tag.name}", tag.line, tag.offset, hint=did_you_mean(tag.name, TAGS) or ""
        )


def _items(script: Script) -> Iterator[_Tag | _Function]:
    tag: _Tag | None = None
    below: list[str] = []
    for number, line in _own_lines(script.lines):
        match = _TAG.match(line)
        comment = _COMMENT.match(line)
        if match is None and comment is not None and tag is not None:
            if not comment[1].startswith("shellcheck "):
                below.append(comment[1].rstrip())
            continue
        if tag is not None:
            yield msgspec.structs.replace(tag, more="\n".join(below).rstrip())
            tag, below = None, []
        if match is not None:
            offset = len(line[: match.start(1) - 1].encode(errors="replace"))
            tag = _Tag(match[1], (match[2] or "").strip(), number, offset)
        elif function := _FUNCTION.match(line):
            yield _Function(function[1] or function[2], number)
    if tag is not None:
        yield msgspec.structs.replace(tag, more="\n".join(below).rstrip())


def _own_lines(lines: list[str]) -> Iterator[tuple[int, str]]:
    """What the author wrote as shell, by number: without generated code and here-documents."""
    places: dict[str, list[int]] = {}
    last_end = -1
    for number, line in enumerate(lines):
        places.setdefault(line.lstrip("\t"), []).append(number)
        last_end = number if _GENERATED_END.match(line) else last_end
    until = -1
    generated = False
    for number, line in enumerate(lines):
        if generated or number <= until:
            generated = generated and not _GENERATED_END.match(line)
        elif _GENERATED.match(line) and number < last_end:
            generated = True
        else:
            yield number + 1, line
            if not line.startswith("#"):
                until = _end_of_heredocs(line, number, places)


def _end_of_heredocs(line: str, number: int, places: dict[str, list[int]]) -> int:
    """The line that ends the last here-document begun in this line; one without an end is none (`1<<n`)."""
    until = number
    for heredoc in _HEREDOC.finditer(line):
        ends = places.get(heredoc["word"], [])
        at = bisect_right(ends, until)
        until = ends[at] if at < len(ends) else until
    return until
