"""A day at the terminal and the next morning: the assistant, with a capable model, works on a small repository."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply, Request
from support.program_window import Window
from support.talking import environment_of, set_in
from support.waiting import READING

BUGGY = """\
def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle]
"""
TESTS = """\
import unittest

from stats import median


class Median(unittest.TestCase):
    def test_odd(self):
        self.assertEqual(median([3, 1, 2]), 2)

    def test_even(self):
        self.assertEqual(median([4, 1, 3, 2]), 2.5)
"""
OLD = "    return ordered[middle]\n"
NEW = """\
    if len(ordered) % 2 == 0:
        return (ordered[middle - 1] + ordered[middle]) / 2
    return ordered[middle]
"""
FIXED = BUGGY.replace(OLD, NEW)
LOOK = [("fs_grep", {"pattern": "def median", "path": "."}), ("fs_read", {"path": "stats.py"})]
EDIT = ("fs_edit", {"path": "stats.py", "edits": [{"old_string": OLD, "new_string": NEW}]})
RUN_TESTS = ("execute_command", {"command": "python3 -B -m unittest"})
PLAN = [("todo__init", {"goal": "mend it"}), ("todo__add", {"task": "edit"}), ("todo__add", {"task": "test"})]
EDITED, TESTED = ("todo__done", {"id": 1}), ("todo__done", {"id": 2})
COMMIT = ("execute_command", {"command": "git commit -qam 'stats: mend median'"})
EXPLORE = [("agent__spawn", {"agent": "explore", "prompt": f"Find {what} of median"}) for what in ("callers", "tests")]

WINDOW = 20_000
"""Tokens; a conversation is shortened at 16,000."""
LOG = "".join(f"12:{row // 60:02}:{row % 60:02} worker {row:04}: {'.' * 40}\n" for row in range(550))
"""A paste of about 8,500 tokens."""
PROMPT = "\n\nassistant>"


class Partner:
    """The person, the window, and the model behind it.

    Attributes:
        explored: the sub-agents answer once it is set. summarised: so does the model that shortens the conversation.
    """

    def __init__(self, window: Window, model: FakeModels) -> None:
        self.window, self.model = window, model
        self.explored, self.summarised = trio.Event(), trio.Event()
        model.answer_with(self._answer)

    def _answer(self, request: Request) -> Reply:
        """What no script says: the replies of agents and of a model that work beside the chat's."""
        if request.system.startswith("You shorten the record"):
            return Reply("SUMMARY: median was mended and committed.", hold=self.summarised)
        if request.system.startswith("You find things in the codebase"):
            return Reply(f"There are two {request.prompt.split()[1]}.", hold=self.explored)
        if "There are two tests." in request.results[-1]:
            return Reply("Both have looked.")
        children = dict.fromkeys(re.findall(r"agent_explore_[0-9a-f]{8}", " ".join(request.results)))
        return Reply(calls=[("agent__collect", {"id": id}) for id in children])

    async def says(self, line: str, *replies: Reply | str) -> None:
        """Type a line; the model's replies to it are these."""
        self.model.script(*replies)
        self.window.press(line, "Enter")

    async def chooses(self, question: str, *keys: str) -> None:
        """Answer a question once it is read."""
        await self.window.until(lambda lines: any(question in line for line in lines[-8:]))
        await trio.sleep(READING)
        self.window.press(*keys)

    async def allows(self, tool: str, key: str, answer: str) -> None:
        """Answer a permission question by the key of an option."""
        before = self.window.lines().count(f"  = {answer}")
        await self.chooses(f"assistant asks: Allow {tool}?", key, "Enter")
        await self.window.until(lambda lines: lines.count(f"  = {answer}") > before)

    async def reads(self, text: str) -> None:
        """Wait for the last words of an answer, with the prompt below."""
        await self.window.shows(f"{text}{PROMPT}")

    async def sees(self, pattern: str) -> None:
        """Wait for a row that begins so."""
        await self.window.until(lambda lines: any(re.match(pattern, line) for line in lines))

    def messages(self) -> list[str]:
        """The contents of the messages of the last request."""
        return [str(message["content"]) for message in self.model.requests[-1].json["messages"]]


def git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", directory, *arguments], check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a repository with a bug, which its tests show."""
    directory = tmp_path / "repo"
    directory.mkdir()
    (directory / "stats.py").write_text(BUGGY)
    (directory / "test_stats.py").write_text(TESTS)
    git(directory, "init", "-q", "-b", "main")
    git(directory, "config", "user.email", "ann@example.org")
    git(directory, "config", "user.name", "Ann")
    git(directory, "add", ".")
    git(directory, "commit", "-qm", "stats: add median")
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def environ(fake_model: FakeModels, tmp_path: Path) -> dict[str, str]:
    """The environment of a user whose only model has a small window and a price."""
    facts = {"max_input_tokens": WINDOW, "supports_function_calling": True, "input_price": 3, "output_price": 15}
    client = {"type": "openai-compatible", "name": "fake", "api_base": fake_model.openai_base, "api_key": "sk-test"}
    config = fake_model.config_dir(tmp_path / "config")
    set_in(config, clients=[{**client, "models": [{"name": "model", **facts}]}])
    return environment_of(config, tmp_path)


@pytest.mark.full
async def test_a_bug_is_found_mended_undone_redone_and_committed_and_the_chat_continued_next_day(
    wide: Window, fake_model: FakeModels, repo: Path, environ: dict[str, str]
) -> None:
    partner = Partner(wide, fake_model)
    wide.start([], environ)
    await wide.shows("\nassistant>")
    await _finds_and_mends(partner, repo)
    await _undoes_redoes_and_commits(partner, repo)
    await _interrupts_and_steers(partner)
    await _has_two_agents_look(partner)
    await _is_compacted(partner)
    assert await wide.leave() == 0
    wide.start(["--continue"], environ)
    await _continues(partner)
    assert await wide.leave() == 0


async def _finds_and_mends(partner: Partner, repo: Path) -> None:
    await partner.says("median([4, 1, 3, 2]) is 3. Find the bug.", Reply(calls=LOOK), "It is in `stats.py:4`.")
    await partner.reads("It is in stats.py:4.")
    replies = [Reply(calls=calls) for calls in (PLAN, [EDIT], [EDITED, RUN_TESTS], [TESTED])]
    await partner.says("Mend it.", *replies, "Both tests pass.")
    await partner.window.shows("  +        return (ordered[middle - 1] + ordered[middle]) / 2")
    await partner.window.shows("\n  ○ edit\n  ○ test\n")
    assert (repo / "stats.py").read_text() == BUGGY
    await partner.allows("fs_edit", "1", "Yes, once")
    await partner.window.shows("\n  ✓ edit\n  ○ test\n")
    await partner.allows("execute_command", "1", "Yes, once")
    await partner.reads("Both tests pass.")
    await partner.window.gone("✓ edit")
    assert (repo / "stats.py").read_text() == FIXED
    assert any("Ran 2 tests" in text for text in partner.messages())
    await partner.says("/diff")
    await partner.window.shows("\n--- a/stats.py\n+++ b/stats.py\n@@ -1,4 +1,6 @@\n")


async def _undoes_redoes_and_commits(partner: Partner, repo: Path) -> None:
    await partner.says("/undo")
    await partner.chooses("callboard asks: Restore 1 file that the answer has changed (stats.py)?", "Enter")
    await partner.window.shows("\nrestored stats.py\n")
    assert (repo / "stats.py").read_text() == BUGGY
    await partner.says("Mend it again.", Reply(calls=[EDIT]), Reply(calls=[RUN_TESTS]), "Both pass again.")
    await partner.allows("fs_edit", "2", "Yes, until this run ends")
    await partner.allows("execute_command", "3", "Yes, always here")
    await partner.reads("Both pass again.")
    assert (repo / "stats.py").read_text() == FIXED
    assert not any("Mend it." in text for text in partner.messages())
    await partner.says("Commit it.", Reply(calls=[COMMIT]), "Committed.")
    await partner.allows("execute_command", "1", "Yes, once")
    await partner.reads("Committed.")
    assert git(repo, "log", "--format=%s").splitlines() == ["stats: mend median", "stats: add median"]
    assert git(repo, "status", "--short") == ""


async def _interrupts_and_steers(partner: Partner) -> None:
    window = partner.window
    await partner.says("Explain it.", Reply("One, two, three, four and many words more.", stall=b"three"))
    await window.shows("\nOne, two, three")
    window.press("C-c")
    await window.shows("▸ interrupted")
    held = trio.Event()
    await partner.says("Now read it.", Reply(calls=LOOK[1:], hold=held), "Short.")
    await window.until(lambda _: "Now read it." in partner.messages()[-1])
    assert any(text.startswith("One, two, three") for text in partner.messages()), "what was said is kept"
    window.press("Tell me in a word.", "Enter")
    await window.shows("\nthe agent reads this before its next request\n")
    held.set()
    await partner.reads("Short.")
    assert partner.messages()[-1] == "Tell me in a word."


async def _has_two_agents_look(partner: Partner) -> None:
    window = partner.window
    await partner.says("Who calls it, and what tests it?", Reply(calls=EXPLORE))
    await window.until(lambda lines: sum("agent_explore_" in row and "fake:model" in row for row in lines) == 2)
    await window.until(lambda lines: sum("agent__collect" in row for row in lines) == 2)
    partner.explored.set()
    await partner.reads("Both have looked.")
    assert not any("fake:model" in row for row in window.lines()[-5:]), "the tree has gone"


async def _is_compacted(partner: Partner) -> None:
    window = partner.window
    for number in (1, 2):
        window.press(f"\x1b[200~{LOG}\x1b[201~")
        await window.shows(f"[pasted 34.6 kB #{number}]")
        await partner.says("", f"Worker {number} is well.")
        await window.shows(f"Worker {number} is well.")
    await window.shows("\nWorker 2 is well.\n\nCompressing the session.\n")
    await window.until(lambda lines: bool(re.search(r"compressing the conversation \d+s", lines[-2])))
    await partner.says("/cost")
    await window.shows("\nchat ")
    await partner.says("And now?", "Nothing is left to do.")
    await window.shows("assistant> And now?")
    await window.until(lambda _: partner.messages()[0].startswith("You shorten the record"))
    partner.summarised.set()
    await partner.sees(r"The conversation was compressed from about 1\d,\d+ tokens to \d,\d+; see")
    await partner.reads("Nothing is left to do.")
    assert any("SUMMARY: median was mended and committed." in text for text in partner.messages())


async def _continues(partner: Partner) -> None:
    await partner.reads("> And now?\nNothing is left to do.")
    await partner.sees(
        r"Reopened 'median.*': \d+ answers?, about [\d,]+ tokens( \(\d+ % of the context window\))?, \$0\.\d+\."
    )
    await partner.says("Run the tests again.", Reply(calls=[RUN_TESTS]), "They still pass.")
    await partner.reads("They still pass.")
    assert "Ran 2 tests" in partner.messages()[-1], "permanently allowed"
    assert any("SUMMARY: median was mended" in text for text in partner.messages())
