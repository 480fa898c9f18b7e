"""Completion of command lines for Callboard's own shell scripts.

click's own protocol (`bash_complete` and similar) passes the words as one text, which bash has already split at colons,
so that `openai:gp` is three words. Here each word is an argument, the last one as far as it is typed. Each line of the
answer is a kind, a value and an explanation, separated by tabs. The kind is `plain`, or `file` or `dir` for values that
the shell itself completes.
"""

from __future__ import annotations

import shlex
import sys

from click.shell_completion import CompletionItem, ShellComplete, add_completion_class

_HELP = 100
"""Maximum characters of an explanation."""


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
        """Return completions without tabs, newlines or other control characters, which the protocol can't represent."""
        if incomplete.startswith("--") and "=" in incomplete:  # click splits them only after it has chosen the command
            flag, _, incomplete = incomplete.partition("=")
            args = [*args, flag]
        found = super().get_completions(args, incomplete)
        return [item for item in found if str(item.value).isprintable()]


def _unquoted(word: str) -> str:
    """Remove the shell's quotes and backslashes from a word; an unterminated quote is removed too."""
    for whole in (word, word.removesuffix("\\"), word + '"', word + "'"):
        try:
            return "".join(shlex.split(whole)) if whole else ""
        except ValueError:
            continue
    return word


def register() -> None:
    """Register `words_complete` with click."""
    add_completion_class(_Words)
