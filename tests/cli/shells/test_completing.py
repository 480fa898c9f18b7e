"""Words completed, as the scripts of all shells ask for it; and each script in its shell, as far as that is here."""

from __future__ import annotations

import json
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest
from support.starter import CALLBOARD

from callboard.cli.shells.commands import _ENDINGS

from ..test_start import HEAVY, imported

Environment = dict[str, str]
PROGRAM = CALLBOARD


def complete(place: Environment, *words: str, **more: str) -> list[tuple[str, str]]:
    """What is offered, and of which kind."""
    done = subprocess.run(
        [*PROGRAM, *words],
        env={**place, "_CALLBOARD_COMPLETE": "words_complete", **more},
        capture_output=True,
        text=True,
        check=True,
        cwd=place["HOME"],
    )
    assert done.stderr == ""
    lines = (line.split("\t") for line in done.stdout.splitlines() if line)
    return [(kind, value) for kind, value, _about in lines]


def plain(*names: str) -> list[tuple[str, str]]:
    return [("plain", name) for name in names]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["agen"], ["agents"]),
        (["run", "mi"], ["mine", "minor"]),
        (["-a", "mi"], ["mine", "minor"]),
        (["-r", "po"], ["poet"]),
        (["-r", "two"], ["two words"]),
        (["ask", "--role", "po"], ["poet"]),
        (["--role=po"], ["poet"]),
        (["ask", "--role=po"], ["poet"]),
        (["-s", ""], ["bridges", "tunnels", "viaducts"]),
        (["-m", "there:alp"], ["there:alpha", "there:alpine"]),
        (["-m", "there:beta,there:alpi"], ["there:beta,there:alpine"]),
        (["loki", "-e", "-m", "there:b"], ["there:beta"]),
        (["macro", "ti"], ["tidy"]),
        (["--macro", "ti"], ["tidy"]),
        (["logs", "run-1a"], ["run-1a2b3c4d", "run-1aff0000"]),
        (["completion", "po"], ["powershell"]),
        (["install", "up"], ["update"]),
        (["install", "there", "--filter", "agents,ro"], ["agents,roles"]),
        (["--list-ro"], ["--list-roles"]),
        (["loki", "--list-ro"], ["--list-roles"]),
        (["-e", "--no-st"], ["--no-stream"]),
        (["-r", '"po'], ["poet"]),
        (["-r", "'po"], ["poet"]),
        (["-r", "po\\"], ["poet"]),
        (["nothing", "li", "ke"], None),
    ],
    ids=str,
)
@pytest.mark.sample(9)
def test_words(place: Environment, words: list[str], offered: list[str] | None) -> None:
    found = complete(place, *words)
    if offered is not None:
        assert found == plain(*offered)


def test_loki_has_the_names_of_the_directory_that_it_works_with(place: Environment) -> None:
    theirs = Path(place["HOME"]) / "theirs"
    (theirs / "roles").mkdir(parents=True)
    (theirs / "roles" / "pirate.md").touch()
    assert complete(place, "loki", "-r", "pi", LOKI_CONFIG_DIR=str(theirs)) == plain("pirate")
    assert complete(place, "-r", "pi", LOKI_CONFIG_DIR=str(theirs)) == []
    assert complete(place, "-C", str(theirs), "-r", "pi") == plain("pirate")


def test_files_are_left_to_the_shell(place: Environment) -> None:
    assert {kind for kind, _value in complete(place, "-f", "x")} == {"file"}


def test_names_that_a_shell_can_not_be_told_of_are_left_out(place: Environment) -> None:
    for name in ("a\tb.md", "a\nb.md", "a\x1b[2Jb.md"):
        (Path(place["CALLBOARD_CONFIG_DIR"]) / "roles" / name).touch()
    assert complete(place, "-r", "a") == plain("atlassian")


def test_models_are_found_anew_when_the_settings_change(place: Environment) -> None:
    assert complete(place, "-m", "there:b") == plain("there:beta")
    file = Path(place["CALLBOARD_CONFIG_DIR"]) / "config.yaml"
    file.write_text(file.read_text().replace("beta", "bravo"))
    assert complete(place, "-m", "there:b") == plain("there:bravo")
    (kept,) = (Path(place["XDG_CACHE_HOME"]) / "callboard" / "completion").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.write_text("{")
    assert complete(place, "-m", "there:b") == plain("there:bravo")
    file.write_text("clients: 1\n")
    assert complete(place, "-m", "there:b") == []


def test_a_key_in_the_environment_brings_its_models(place: Environment) -> None:
    assert complete(place, "-m", "openai:gpt-4o-m") == []
    assert ("plain", "openai:gpt-4o-mini") in complete(place, "-m", "openai:gpt-4o-m", OPENAI_API_KEY="sk-test-1234")
    (kept,) = (Path(place["XDG_CACHE_HOME"]) / "callboard" / "completion").iterdir()
    assert "sk-test" not in kept.read_text()


@pytest.mark.parametrize("words", ["", "-", "run mi", "-r po", "-s b", "-m there:", "macro t", "logs r"])
@pytest.mark.sample(3)
def test_nothing_heavy_is_imported_once_the_models_are_known(
    place: Environment, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete(place, "-m", "there:")
    for name in ("CALLBOARD_CONFIG_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.setenv(name, place[name])
    environment = {**place, "_CALLBOARD_COMPLETE": "words_complete"}
    modules = imported(
        *words.split(" "), **{name: environment[name] for name in environment if name not in ("PATH", "TERM")}
    )
    assert not modules & HEAVY


@pytest.mark.sample(1)
@pytest.mark.parametrize("words", [["-m", "there:"], ["-r", ""], ["run", ""], ["-s", ""]], ids=" ".join)
def test_one_key_takes_little_more_than_python_itself(place: Environment, words: list[str]) -> None:
    complete(place, "-m", "there:")

    def cpu_seconds(command: list[str], **more: str) -> float:
        """The least of three processes: that of other programs does not count, whatever the machine does."""
        best = inf
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, env={**place, **more}, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return best

    bare = cpu_seconds([sys.executable, "-c", "pass"])
    command = [sys.executable, "-m", "callboard.cli", *words]
    assert cpu_seconds(command, _CALLBOARD_COMPLETE="words_complete") < 8 * bare


# --- the scripts -------------------------------------------------------------------------------------------


def shell(name: str) -> Callable[..., pytest.MarkDecorator]:
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed")


def script(shell: str, what: str = "completion") -> str:
    return subprocess.run([*PROGRAM, what, shell], check=True, capture_output=True, text=True).stdout


def in_shell(place: Environment, *command: str) -> str:
    done = subprocess.run(
        command, env=place, cwd=place["HOME"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("name", _ENDINGS)
@pytest.mark.sample(3)
def test_every_shell_has_both_scripts(name: str) -> None:
    completion, whole = script(name), script(name, "shell-init")
    assert completion.startswith("# callboard: completion for ")
    assert whole.startswith(completion)
    assert "callboard -e" in whole
    assert "alias" in script(name, "shell-init") or "loki" not in whole.removeprefix(completion)


LINES = [
    ("callboard run mi", ["mine", "minor"]),
    ("callboard -m there:alp", ["alpha", "alpine"]),
    ("callboard --model=there:b", ["beta"]),
    ("callboard -r two", ["two\\ words"]),
    ("callboard -s ", ["bridges", "tunnels", "viaducts"]),
    ("loki -r po", ["poet"]),
]


@shell("bash")
@pytest.mark.parametrize(("line", "offered"), LINES)
@pytest.mark.sample(3)
def test_bash(place: Environment, line: str, offered: list[str]) -> None:
    # As bash splits a line: at blanks, and at the other characters of COMP_WORDBREAKS.
    words: list[str] = []
    for word in line.split(" "):
        for mark in "=:":
            word = word.replace(mark, f"\0{mark}\0")
        words += [part for part in word.split("\0") if part] or [""]
    setting = f"COMP_LINE={shlex.quote(line)}; COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}"
    call = f"{script('bash')}\n{setting}; _callboard; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    assert in_shell(place, "bash", "--norc", "-c", call).splitlines() == offered


@shell("fish")
@pytest.mark.parametrize(("line", "offered"), LINES[:-1])
def test_fish(place: Environment, line: str, offered: list[str]) -> None:
    call = f"{script('fish')}\ncomplete -C {shlex.quote(line)}"
    found = [each.split("\t")[0] for each in in_shell(place, "fish", "-N", "-c", call).splitlines()]
    start = line.split(" ")[-1]
    start = start[: max(start.rfind("="), start.rfind(":")) + 1]
    assert found == [start + each.replace("\\", "") for each in offered]


@shell("fish")
def test_fish_knows_the_alias(place: Environment) -> None:
    whole = subprocess.run([*PROGRAM, "shell-init", "fish", "--loki"], check=True, capture_output=True, text=True)
    call = f"{whole.stdout}\ncomplete -C 'loki -r po'"
    assert in_shell(place, "fish", "-N", "-c", call).split("\t")[0].strip() == "poet"


@shell("nu")
@pytest.mark.parametrize(("line", "offered"), LINES[:-2])
def test_nushell(place: Environment, line: str, offered: list[str], tmp_path: Path) -> None:
    (tmp_path / "c.nu").write_text(script("nushell", "shell-init"))
    spans = " ".join(f'"{word}"' for word in line.split(" "))
    call = f"source {tmp_path / 'c.nu'}; do $env.config.completions.external.completer [{spans}] | to json"
    found = json.loads(in_shell(place, "nu", "-n", "-c", call))
    assert [each["value"].split(":")[-1] for each in found] == [each.replace("\\", "") for each in offered]


@shell("zsh")
@pytest.mark.parametrize("what", ["completion", "shell-init"])
def test_zsh_takes_the_script(place: Environment, what: str) -> None:
    call = f"autoload -Uz compinit && compinit -u\n{script('zsh', what)}\nprint -r -- $_comps[callboard]"
    assert in_shell(place, "zsh", "-f", "-c", call).strip() == "_callboard"


@shell("pwsh")
@pytest.mark.parametrize("what", ["completion", "shell-init"])
def test_powershell_takes_the_script(place: Environment, what: str) -> None:
    in_shell(place, "pwsh", "-NoProfile", "-Command", script("powershell", what))
