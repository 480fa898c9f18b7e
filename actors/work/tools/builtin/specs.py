"""Specs of the built-in tools for models, and the effect each has on the world.

Names and parameters are Loki's. Where Loki has no parameter for something a model needs (`fs_cat --offset`, the
database of `execute_sql_code`), ours is optional.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..tool import Effect, Json

__all__ = ["SPECS", "Spec"]


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """One tool.

    Attributes:
        description: for the model.
        module: of this package, with a function of the tool's name.
        effect: see `Tool`.
        required, optional: parameters by name, each a JSON Schema.
        subject, reads, synonyms: see `Tool`.
    """

    description: str
    module: str
    effect: Effect
    required: Mapping[str, Json] = {}
    optional: Mapping[str, Json] = {}
    subject: str = ""
    synonyms: Mapping[str, str] = {}
    reads: bool = False

    def schema(self) -> dict[str, Json]:
        """The JSON Schema of the arguments."""
        return {
            "type": "object",
            "properties": {**self.required, **self.optional},
            "required": list(self.required),
            "additionalProperties": False,
        }


def _text(description: str) -> Json:
    return {"type": "string", "description": description}


def _count(description: str) -> Json:
    return {"type": "integer", "minimum": 1, "description": description}


_OFFSET = _count("Number of the first line to read; the first line of a file is 1.")
_LIMIT = _count("How many lines to read.")
_BELOW = _text("Directory to look in; the working directory if left out.")

CONTENTS = {"content": "contents"}
"""What Loki's successor calls the parameter, and so the prompts that were written for it."""

SPECS: Mapping[str, Spec] = {
    "fs_cat": Spec(
        description="Read a text file as it is. For a part of a large file, or for line numbers, use fs_read.",
        module="reading",
        effect="read",
        required={"path": _text("The file.")},
        optional={"offset": _OFFSET, "limit": _LIMIT},
        subject="path",
        reads=True,
    ),
    "fs_read": Spec(
        description="Read lines of a text file, each with its number. Reads 2000 lines if no limit is given.",
        module="reading",
        effect="read",
        required={"path": _text("The file.")},
        optional={"offset": _OFFSET, "limit": _LIMIT},
        subject="path",
        reads=True,
    ),
    "fs_ls": Spec(
        description="List the files and directories in a directory. Directories end with '/', links show their target.",
        module="reading",
        effect="read",
        optional={"path": _text("The directory; the working directory if left out.")},
        subject="path",
        reads=True,
    ),
    "fs_glob": Spec(
        description="Find files by name, at any depth, the last changed first. "
        "Skips version control, caches and installed packages.",
        module="finding",
        effect="read",
        required={
            "pattern": _text(
                "`*.py` finds by name; with a '/' the path below the directory is matched, where `**` is any number of "
                "directories: `src/**/*.{ts,tsx}`."
            )
        },
        optional={"path": _BELOW},
        subject="path",
        reads=True,
    ),
    "fs_grep": Spec(
        description="Search the lines of text files with a regular expression. Returns path:line:text. "
        "Skips version control, caches and installed packages.",
        module="finding",
        effect="read",
        required={"pattern": _text("A regular expression in Python's syntax; begin it with (?i) to ignore case.")},
        optional={
            "path": _text("File or directory to search; the working directory if left out."),
            "include": _text("Search only files whose name matches: `*.rs`, `*.{ts,tsx}`."),
        },
        subject="path",
        reads=True,
    ),
    "fs_write": Spec(
        description="Write a whole file; it is made, with its directories, or replaced.",
        module="writing",
        effect="write",
        required={"path": _text("The file."), "contents": _text("All that the file shall contain.")},
        subject="path",
        synonyms=CONTENTS,
    ),
    "fs_patch": Spec(
        description="Change parts of a file with a unified diff. The lines of context and the removed lines "
        "must stand in the file exactly so. All hunks are applied, or none.",
        module="patching",
        effect="write",
        required={
            "path": _text("The file; the names in the diff are not looked at."),
            "contents": _text(
                "A unified diff: hunks that begin with `@@ -12,3 +12,4 @@`, then lines beginning with ' ' (stays), "
                "'-' (goes) or '+' (comes)."
            ),
        },
        subject="path",
        synonyms=CONTENTS,
        reads=True,
    ),
    "fs_mkdir": Spec(
        description="Make a directory, with those above it that are missing.",
        module="writing",
        effect="write",
        required={"path": _text("The directory.")},
        subject="path",
    ),
    "fs_rm": Spec(
        description="Remove a file, or a directory with all that is in it.",
        module="writing",
        effect="write",
        required={"path": _text("The file or directory.")},
        subject="path",
    ),
    "execute_command": Spec(
        description="Run a shell command (bash). Returns what it prints; its exit status is told unless it is 0. "
        "It has no terminal and no input.",
        module="commands",
        effect="execute",
        required={"command": _text("The command.")},
        subject="command",
    ),
    "execute_py_code": Spec(
        description="Run Python code in a process of its own. Returns what it prints, "
        "and the value of its last line if that is an expression.",
        module="commands",
        effect="execute",
        required={"code": _text("The code.")},
        subject="code",
    ),
    "execute_sql_code": Spec(
        description="Run SQL statements on a SQLite database. Returns the rows.",
        module="commands",
        effect="execute",
        required={"code": _text("One or more statements, each ending with ';'.")},
        optional={"database": _text("File of the database; if left out, the one that the user has set up.")},
        subject="code",
        reads=True,
    ),
    "fetch_url_via_curl": Spec(
        description="Get the text of a web page.",
        module="web",
        effect="read",
        required={"url": _text("An http or https URL.")},
        subject="url",
    ),
    "get_current_time": Spec(
        description="Get the current date, time and time zone.",
        module="clock",
        effect="none",
    ),
    "get_current_weather": Spec(
        description="Get the current weather of a place.",
        module="searches",
        effect="read",
        required={"location": _text("The place: `London`, `Portland, Oregon`.")},
        subject="location",
    ),
    "search_arxiv": Spec(
        description="Search arXiv for papers. Returns title, authors, link and abstract of the best.",
        module="searches",
        effect="read",
        required={"query": _text("What to search for.")},
        subject="query",
    ),
    "search_wikipedia": Spec(
        description="Search Wikipedia. Returns the beginnings of the best articles.",
        module="searches",
        effect="read",
        required={"query": _text("What to search for.")},
        subject="query",
    ),
    "web_search_loki": Spec(
        description="Search the web for up-to-date information. Returns title, URL and an excerpt of the best pages.",
        module="searches",
        effect="read",
        required={"query": _text("What to search for.")},
        subject="query",
    ),
}
