"""Loki's command line: a command of the shell from words (section 5 of the plan and of the checklist)."""

from __future__ import annotations

from qa.home import QaHome


def test_p5_1_c5_1_a_command_is_made_of_words(qa_home: QaHome) -> None:
    qa_home.says("ls /tmp")
    with qa_home.terminal("loki", "-e", "list", "files", "in", "/tmp") as terminal:
        terminal.shows("^ls /tmp$")
        terminal.shows("execute")
        assert qa_home.last().prompt == "list files in /tmp"
        terminal.choose("q")
        assert terminal.ended() == 0


def test_p5_2_c5_2_the_command_is_explained(qa_home: QaHome) -> None:
    qa_home.says("ls /tmp", "It lists the files.")
    with qa_home.terminal("loki", "-e", "list files in /tmp") as terminal:
        terminal.shows("describe.*: ?$")
        terminal.choose("d")
        terminal.shows("It lists the files.")
        assert qa_home.last().prompt == "ls /tmp"
        terminal.shows(r"(?s)It lists.*execute \|")
        terminal.choose("q")
        assert terminal.ended() == 0


def test_p5_3_c5_3_the_command_is_run_when_the_person_says_so(qa_home: QaHome) -> None:
    qa_home.says("echo it-$((40 + 2))-runs")
    with qa_home.terminal("loki", "-e", "prove it") as terminal:
        terminal.shows("execute.*: ?$")
        terminal.shows_not("it-42-runs")
        terminal.choose("y")
        terminal.shows("it-42-runs")
        assert terminal.ended() == 0


def test_p5_4_a_dry_run_of_it_asks_and_runs_nothing(qa_home: QaHome) -> None:
    before = len(qa_home.requests())
    ended = qa_home.loki("-e", "--dry-run", "list files")
    assert ended.code == 0
    assert "list files" in ended.shown
    assert len(qa_home.requests()) == before
