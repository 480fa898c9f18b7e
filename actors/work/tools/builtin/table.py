"""Table of the built-in tools: their descriptions for models, their effects, and the `Tool` objects.

A tool's code is imported at its first call; only `get_current_time` is in this module. Programs are stopped shortly
before the call's own time limit, so that their output so far reaches the model.

Names and parameters are Loki's. Where Loki lacks a parameter that models need (`fs_cat --offset`, the database of
`execute_sql_code`), the additional parameter is optional.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ....io.imports import imported
from ..stored_results import readable
from ..tool import TIMEOUT, Access, Arguments, Effect, Json, Tool, ToolSpec

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ..rules import FileAccess
    from .allowed_paths import Setting


class BuiltinSpec(msgspec.Struct, frozen=True):
    """Specification of one built-in tool.

    Attributes:
        module: of this package, with a function of the tool's name.
        effect, subject, reads, synonyms: see `Tool`.
        description: for the model.
        required, optional: parameters by name, each a JSON Schema.
        previews: a diff of the change is available before approval (`writing.preview_of`).
    """

    module: str
    effect: Effect
    subject: str
    description: str
    required: Mapping[str, Json] = {}
    optional: Mapping[str, Json] = {}
    reads: bool = False
    synonyms: Mapping[str, str] = {}
    previews: bool = False

    def schema(self) -> dict[str, Json]:
        """Return the JSON Schema of the arguments."""
        return {
            "type": "object",
            "properties": {**self.required, **self.optional},
            "required": list(self.required),
            "additionalProperties": False,
        }


_ACCESS: Mapping[str, Access] = {
    **dict.fromkeys(("reading", "writing"), "files"),
    "web": "web",
    "table": "nothing",  # get_current_time
}
"""Access mechanism by module; all others start processes."""


def _texts(**descriptions: str) -> Mapping[str, Json]:
    return {name: {"type": "string", "description": text} for name, text in descriptions.items()}


def _counts(**descriptions: str) -> Mapping[str, Json]:
    return {name: {"type": "integer", "minimum": 1, "description": text} for name, text in descriptions.items()}


_reads = partial(BuiltinSpec, "reading", "read", "path", reads=True)
_finds = partial(BuiltinSpec, "reading", "read", "path", reads=True)
_writes = partial(BuiltinSpec, "writing", "write", "path")
_runs = partial(BuiltinSpec, "commands", "execute")
_searches = partial(BuiltinSpec, "web", "read")

_FILE = _texts(path="The file.")
_LINES = _counts(
    offset="Number of the first line to read; the first line of a file is 1.",
    limit="How many lines to read.",
)
_QUERY = _texts(query="What to search for.")

CONTENTS = {"content": "contents"}
"""Parameter name of Loki's successor, which prompts written for it use."""

SPECS: Mapping[str, BuiltinSpec] = {
    "fs_cat": _reads(
        "Read a text file as it is. For a part of a large file, or for line numbers, use fs_read.", _FILE, _LINES
    ),
    "fs_read": _reads(
        "Read lines of a text file, each with its number. Reads 2000 lines if no limit is given.", _FILE, _LINES
    ),
    "fs_ls": _reads(
        "List the files and directories in a directory. Directories end with '/', links show their target.",
        optional=_texts(path="The directory; the working directory if left out."),
    ),
    "fs_glob": _finds(
        "Find files by name, at any depth, the last changed first. "
        "Skips version control, caches and installed packages.",
        _texts(
            pattern="`*.py` finds by name; with a '/' the path below the directory is matched, where `**` is any "
            "number of directories: `src/**/*.{ts,tsx}`."
        ),
        _texts(path="Directory to look in; the working directory if left out."),
    ),
    "fs_grep": _finds(
        "Search the lines of text files with a regular expression. Returns path:line:text. "
        "Skips version control, caches and installed packages.",
        _texts(pattern="A regular expression in Python's syntax; begin it with (?i) to ignore case."),
        _texts(
            path="File or directory to search; the working directory if left out.",
            include="Search only files whose name matches: `*.rs`, `*.{ts,tsx}`.",
        ),
    ),
    "fs_write": _writes(
        "Write a whole file; it is made, with its directories, or replaced.",
        _texts(path="The file.", contents="All that the file shall contain."),
        synonyms=CONTENTS,
        previews=True,
    ),
    "fs_patch": _writes(
        "Change parts of a file with a unified diff. The lines of context and the removed lines "
        "must stand in the file exactly so. All hunks are applied, or none.",
        _texts(
            path="The file; the names in the diff are not looked at.",
            contents="A unified diff: hunks that begin with `@@ -12,3 +12,4 @@`, then lines beginning with ' ' "
            "(stays), '-' (goes) or '+' (comes).",
        ),
        synonyms=CONTENTS,
        reads=True,
        previews=True,
    ),
    "fs_edit": _writes(
        "Replace exact text in a file. Each `old_string` must occur once, with the blanks that the file has, unless "
        "`replace_all` is true. All edits are applied, in order, or none. Line ends and encoding stay.",
        {
            **_texts(path="The file."),
            "edits": {
                "type": "array",
                "minItems": 1,
                "description": "The edits; each applies to the result of the one before.",
                "items": {
                    "type": "object",
                    "properties": {
                        **_texts(old_string="Text that is in the file.", new_string="Text to put in its place."),
                        "replace_all": {"type": "boolean", "description": "Replace every occurrence."},
                    },
                    "required": ["old_string", "new_string"],
                    "additionalProperties": False,
                },
            },
        },
        reads=True,
        previews=True,
    ),
    "fs_mkdir": _writes("Make a directory, with those above it that are missing.", _texts(path="The directory.")),
    "fs_rm": _writes(
        "Remove a file, or a directory with all that is in it.", _texts(path="The file or directory."), previews=True
    ),
    "execute_command": _runs(
        "command",
        "Run a shell command (bash). Returns what it prints, and its exit status unless that is 0. "
        "It has no terminal and no input.",
        _texts(command="The command."),
    ),
    "execute_py_code": _runs(
        "code",
        "Run Python code in a process of its own. Returns what it prints, "
        "and the value of its last line if that is an expression.",
        _texts(code="The code."),
    ),
    "execute_sql_code": _runs(
        "code",
        "Run SQL statements on a SQLite database. Returns the rows.",
        _texts(code="One or more statements, each ending with ';'."),
        _texts(database="File of the database; if left out, the one that the user has set up."),
        reads=True,
    ),
    "fetch_url_via_curl": BuiltinSpec(
        "web", "read", "url", "Get the text of a web page.", _texts(url="An http or https URL.")
    ),
    "get_current_time": BuiltinSpec("table", "none", "", "Get the current date, time and time zone."),
    "get_current_weather": _searches(
        "location", "Get the current weather of a place.", _texts(location="The place: `London`, `Portland, Oregon`.")
    ),
    "search_arxiv": _searches(
        "query", "Search arXiv for papers. Returns title, authors, link and abstract of the best.", _QUERY
    ),
    "search_wikipedia": _searches("query", "Search Wikipedia. Returns the beginnings of the best articles.", _QUERY),
    "web_search_loki": _searches(
        "query",
        "Search the web for up-to-date information. Returns title, URL and an excerpt of the best pages.",
        _QUERY,
    ),
}


def builtin_tools(
    environ: Mapping[str, str],
    roots: Sequence[Path] = (),
    *,
    here: Path | None = None,
    timeout: float = TIMEOUT,
    keeps: bool = True,
) -> dict[str, Tool]:
    """Return all built-in tools by name.

    Args:
        environ: the environment of commands, with the addresses of proxies, databases and services.
        roots: directories that `fs_*` may access; none for the working directory. The base of relative paths is the
            working directory in any case, as for commands of the same model.
        here: the working directory; None for that of the process.
        timeout: seconds of one call.
        keeps: store the earlier content of files that a run changes.
    """
    from .allowed_paths import AllowedPaths, Setting

    here = here or Path.cwd()
    setting = Setting(environ=environ, paths=AllowedPaths(roots or (here,), here), timeout=timeout, keeps=keeps)
    return {name: _tool(name, spec, setting) for name, spec in SPECS.items()}


def _tool(name: str, spec: BuiltinSpec, setting: Setting) -> Tool:
    # Stored results are an additional root for reading only: a tool that also writes must not change them.
    shows = spec.reads and spec.effect == "read"

    async def run(me: Actor, arguments: Arguments, access: FileAccess | None = None) -> Json:
        module = f"{__package__}.{spec.module}"
        # A thread imports the module, so that the first call does not stall the event loop.
        await imported(module)
        function = getattr(import_module(module), name)
        paths = setting.paths if access is None else setting.paths.within(access)
        if shows and (results := readable.get()) is not None and (kept := results()) is not None and kept.may_be_read:
            paths = paths.with_root(kept.directory)
        return await function(me, msgspec.structs.replace(setting, paths=paths), arguments)

    async def preview(arguments: Arguments, access: FileAccess) -> str:
        from .writing import preview_of

        return await preview_of(name, setting.paths.within(access), arguments)

    async def was_done(me: Actor) -> bool | None:
        from ..changes.snapshot import was_done

        return await was_done(me, setting)

    return Tool(
        spec=ToolSpec(name=name, description=spec.description, parameters=spec.schema()),
        run=run,
        effect=spec.effect,
        origin="builtin",
        timeout=setting.timeout,
        subject=spec.subject,
        shell=spec.subject == "command",
        synonyms=spec.synonyms,
        reads=spec.reads,
        access=_ACCESS.get(spec.module, "process"),
        run_within=run,
        preview=preview if spec.previews else None,
        # Only changes of files leave a record that proves whether an interrupted call was done.
        was_done=was_done if spec.module == "writing" else None,
    )


async def get_current_time(_me: Actor, _setting: Setting, _arguments: Arguments) -> str:
    """Return the time in a form for users and models: `Friday 2025-10-24 17:55:04 MDT (UTC-06:00)`."""
    now = datetime.now().astimezone()
    offset = now.strftime("%z")
    return now.strftime(f"%A %Y-%m-%d %H:%M:%S %Z (UTC{offset[:3]}:{offset[3:]})")
