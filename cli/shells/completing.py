"""Completes the words of a command line, as our own scripts ask for it.

click's own way (`bash_complete` and its likes) hands the words over as one text, which bash has split at colons before,
so that `openai:gp` is three words. Here each word is an argument of ours, the last one as far as it is typed, and each
line of the answer is a kind, a value and an explanation, parted by tabs. The kind is `plain`, or `file` or `dir` for
what the shell itself completes.
"""

from __future__ import annotations

import shlex
import sys

from click.shell_completion import CompletionItem, ShellComplete, add_completion_class

_HELP = 100
"""Characters of an explanation."""


class _Words(ShellComplete):
    name = "words"
    source_template = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        words = [_unquoted(word) for word in sys.argv[1:]] or [""]
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[str]) -> str:
        explained = " ".join((item.help or "").split())
        if len(explained) > _HELP:
            explained = explained[: _HELP - 1] + "…"
        return f"{item.type}\t{item.value}\t{explained}"

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """Without names that hold tabs, newlines or other control characters: no shell could be told of them."""
        if incomplete.startswith("--") and "=" in incomplete:  # click splits them when it has chosen the command
            flag, _, incomplete = incomplete.partition("=")
            args = [*args, flag]
        found = super().get_completions(args, incomplete)
        return [item for item in found if str(item.value).isprintable()]


def _unquoted(word: str) -> str:
    """The word without the quotes and backslashes of the shell; a quote that does not end yet is left out."""
    for whole in (word, word.removesuffix("\\"), word + '"', word + "'"):
        try:
            return "".join(shlex.split(whole)) if whole else ""
        except ValueError:
            continue
    return word


def register() -> None:
    """Have click know `words_complete`."""
    add_completion_class(_Words)
