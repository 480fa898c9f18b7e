"""Ordinary coding tasks are hardly ever asked about, under the configuration that docs/security.md states.

A trusted repository, the default sandbox, and the package indexes and manuals that the user has named. Twenty of the
tasks search the web, half of them after tests have run: by then a program could have read the user's files, and the
page could say anything. Only a second request to a host of the model's choice is a question.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from support.label_flows import Call, FlowLab
from support.repository import Repository

import callboard

NETWORK = ["pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "docs.python.org", "github.com"]


def command(line: str) -> Call:
    return "execute_command", {"command": line}


def page(url: str) -> Call:
    return "fetch_url_via_curl", {"url": url}


EDITS: list[list[Call]] = [
    [("fs_cat", {"path": "src/a.py"}), ("fs_write", {"path": "src/a.py", "contents": "print(3)\n"})],
    [("fs_grep", {"pattern": "print", "path": "src"}), ("fs_write", {"path": "src/c.py", "contents": "x = 1\n"})],
    [("fs_ls", {}), ("fs_cat", {"path": "clean/b.py"}), ("fs_write", {"path": "clean/b.py", "contents": "y = 1\n"})],
    [("execute_py_code", {"code": "open('src/d.py', 'w').write('z = 1')"})],
    [command("sed -i s/1/2/ src/a.py"), command("git diff")],
]
CHECKS: list[list[Call]] = [
    [command("pytest -q")],
    [command("make test"), command("make lint")],
    [command("npm test")],
    [command("python src/a.py"), command("cargo build")],
    [("execute_py_code", {"code": "import a"}), command("ruff check .")],
]
ENDS: list[list[Call]] = [
    [command("git add -A"), command("git commit -m done")],
    [command("pip install requests"), command("pytest -q"), command("git commit -am done")],
    [
        page("https://docs.python.org/3/library/os.html"),
        command("npm install left-pad"),
        page("https://docs.python.org/3/"),
    ],
    [command("git log --oneline"), command("cat README.md"), command("./build.sh && git push origin HEAD")],
]
SEARCH: Call = ("web_search_loki", {"query": "python print"})


def tasks() -> Iterator[list[Call]]:
    """A hundred tasks: an edit, a check, an end; in each fifth of them a search, before the edit or after the check."""
    for number, (edit, check, end) in enumerate(itertools.product(EDITS, CHECKS, ENDS)):
        before = [SEARCH] if number % 10 == 0 else []
        after = [SEARCH] if number % 20 == 5 else []
        yield [*before, *edit, *check, *after, *end]


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.full)])
async def test_of_a_hundred_coding_tasks_at_most_five_are_asked_about(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, whole: bool
) -> None:
    monkeypatch.delenv("CALLBOARD_SANDBOX")
    lab = FlowLab(repository, monkeypatch)
    repository.settings(sandbox={"network": NETWORK})
    every = list(tasks())
    assert len(every) == 100
    chosen = every if whole else every[::7]
    asked = []
    async with callboard.Root(config_dir=repository.config) as root:
        for task in chosen:
            await lab.run(task, root=root)
            assert len(lab.ended) == len(task)
            asked += [task] if any(error is not None for _, error in lab.ended) else []
    with capsys.disabled():
        print(f"\nneedless questions of labels: {len(asked)} of {len(chosen)} coding tasks")
    assert len(asked) * 20 <= len(chosen), asked
