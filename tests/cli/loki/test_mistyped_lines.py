"""A battery of mistyped lines, none of which is sent to a model, and of sentences, each of which can be."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator

import click
import pytest

from callboard.actors.front.chat.command_line import ALIASES
from callboard.actors.front.chat.command_line import COMMANDS as CHAT_COMMANDS
from callboard.actors.front.chat.execution import find_command
from callboard.cli.loki.routing import is_prompt
from callboard.cli.main import COMMANDS, cli
from callboard.protocol.errors import UsageError

SEED = 38
BEHIND = ["coder", "list", "flow.yaml", "new clerk", "run-7f3a01bc --yes", "coder 'fix the bug'", "-o json", ""]
"""What stands behind a command."""

SENTENCES = """\
run the tests and mend what fails
test the login page
show me where median is defined
what is a monad
what does this function return
who wrote this
why is the build red
answer in French
ask the user for a name
stop the world
fork the process twice
graph theory in two sentences
top ten sorting algorithms
chat about the weather
convert 3 miles to kilometres
resume of a software engineer
replay the last song
serve two masters
logs are missing a timestamp
tools of a carpenter
roles of mitochondria
rules of chess
models of the atom
modes of failure
keys of a piano
skills for a data analyst
trust is good, control is better
install nginx on debian
init a repository
usage of the semicolon
attach a file to an email
macro photography for beginners
validate an IBAN
schema of a blog
agents of change
agent orange, what was it
setup of a home network
doctor, my head hurts
demo of a quine in Python
worker rights in 1900
cluster analysis in R
batch or stream processing
tell me a joke
give me a haiku
fix the bug in median
explain git rebase
help me to write a letter
list all prime numbers below 50
clear the cache of npm
exit codes of curl""".splitlines()


def slip_of(name: str, chance: random.Random) -> str:
    """The name with one edit: a letter too many, too few, another one, or two neighbours swapped."""
    at = chance.randrange(len(name))
    letter = chance.choice(string.ascii_letters)
    swapped = name[: at - 1] + name[at] + name[at - 1] + name[at + 1 :] if at else name[1] + name[0] + name[2:]
    kinds = [name[:at] + letter + name[at:], name[:at] + name[at + 1 :], name[:at] + letter + name[at + 1 :], swapped]
    return chance.choice([kind for kind in kinds if kind and kind != name])


def mistyped_lines() -> Iterator[list[str]]:
    """Five lines of every command, with different words behind."""
    chance = random.Random(SEED)
    for number, name in enumerate([*COMMANDS] * 5):
        yield [slip_of(name, chance), *BEHIND[number % len(BEHIND)].split()]


def test_no_mistyped_command_is_sent_to_a_model() -> None:
    lines = [*mistyped_lines()]
    assert len(lines) >= 200
    assert [line for line in lines if is_prompt(line, COMMANDS)] == []


def test_every_sentence_in_quotes_is_a_prompt() -> None:
    assert len(SENTENCES) == 50
    assert [sentence for sentence in SENTENCES if not is_prompt([sentence], COMMANDS)] == []
    assert [sentence for sentence in SENTENCES if not is_prompt(["--", *sentence.split()], COMMANDS)] == []


@pytest.mark.parametrize(("name", "key"), [("ask", "prompt"), ("loki", "text")])
def test_ask_and_loki_take_every_sentence_with_and_without_quotes(name: str, key: str) -> None:
    parent = click.Context(cli, info_name="callboard", **cli.context_settings)
    command = cli.get_command(parent, name)
    assert command is not None
    for sentence in SENTENCES:
        for words in ([sentence], sentence.split()):
            assert not is_prompt([name, *words], COMMANDS)
            given = command.make_context(name, list(words), parent).params[key]
            assert (given if isinstance(given, str) else " ".join(given)) == sentence


def test_no_mistyped_command_of_a_chat_is_a_prompt() -> None:
    chance = random.Random(SEED)
    for name in [*CHAT_COMMANDS, *ALIASES] * 4:
        first, *second = name[1:].split()
        for line in (f".{slip_of(first, chance)} {' '.join(second)}", f"/{slip_of(first, chance)} some words"):
            try:
                assert find_command(line) is not None, line
            except UsageError:
                continue
