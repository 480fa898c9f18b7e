"""`callboard demo`: three agents repair a repository, are killed in the middle of it, and resume.

The story of examples/demo runs in a temporary directory. The demo starts the commands that a user would type,
`callboard run` and then `callboard resume`, each as a process at the same terminal. This module creates the
directory, announces each scene, waits for the permission question, kills the process that asks it, and prints the
totals at the end.

The graph, the processes, the tools, the tests, permissions, sandbox, journal, kill, and resume are real. The replies
of the coding agents are prepared: their model is `cassette:../replies.jsonl`. With `--model` another model replaces
it, and nothing else changes. One reply is live in both cases: the last node asks a very small model on this machine.

Processes report to the demo through a file (see `render/story`). The demo empties the file before each start.

Traps:

- A process that is killed while it asks leaves the terminal in raw mode, without a cursor. The demo saves the
  terminal modes before the start and restores them after the kill.
- The demo itself may be killed. The kernel then kills its process too (`PR_SET_PDEATHSIG`); otherwise that process
  and the shell would both read the terminal. The next `callboard demo` finds the interrupted run by its working
  directory.
- Without a terminal a question is closed at once, because no user can answer it. So the process gets a pseudoterminal,
  and after the kill the demo stores the answer with `callboard answer`.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from ...protocol.environment import PREFIXES
from ...protocol.errors import CallboardError, ConfigError
from .. import options

STORY = Path(__file__).parents[2] / "examples/demo"
PREFIX = "callboard-demo-"
"""First characters of the name of each demo directory, in the directory for temporary files."""

CASSETTE = "cassette:../replies.jsonl"
ANSWER = "yes"
"""Answer to the permission question if no terminal can ask the user."""

PREPARED = (
    "A demo: the replies of its coding agents are prepared (a cassette). All else is real: "
    "processes, tools, tests, permissions, sandbox, journal, kill, and resume."
)
LIVE = "A live demo: the model of the coding agents is {model}."

NEXT = (
    ("replay {run}", "the same run, from its journal"),
    ("init my-graph", "a graph of your own, from a template"),
    ("setup", "choose a model for your agents"),
)
"""Commands printed at the end, each with its purpose."""

_PACE = 2.0
"""Seconds that the question stays on the screen before the kill."""

_LOOK = 0.05
"""Seconds between two reads of the report file."""

PRICED_AS = "Claude Haiku 4.5"
_CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|[\r\x08\x07]")
_COLUMNS, _ROWS = 80, 24
# From <linux/prctl.h>; Python has no constant for it.
_PR_SET_PDEATHSIG = 1
_RESET = "\r\x1b[J\x1b[0m\x1b[?25h\x1b[?2004l\x1b[?7h"
"""Escape sequences: erase below the cursor, reset colours, show the cursor, leave bracketed paste, wrap lines."""


@click.command("demo", short_help="Watch agents repair a program, be killed, and continue.")
@click.option(
    "-m",
    "--model",
    metavar="MODEL",
    shell_complete=options.complete_model,
    help="Run the story with this model (client:model) instead of the prepared replies.",
)
@click.option("--fast", is_flag=True, help="Without pauses for reading.")
@click.option("--step", is_flag=True, help="Wait for Enter before each scene.")
@options.no_input
@options.config_dir
def command(model: str | None, fast: bool, step: bool, no_input: bool, config_dir: str | None) -> int:
    """Show Callboard at work, in half a minute: three agents repair a failing test, and ask before they change a file.
    Their process is killed with kill -9, and `callboard resume` continues at the same question.

    No key is needed: the replies of the agents are prepared, and everything else is real. With --model, a live model
    replies. Without a terminal, or with --no-input, the demo answers the question itself.

    If a demo was interrupted, the next `callboard demo` continues it.
    """
    from ..frame import person_at_terminal

    if fast and step:
        raise click.UsageError("--fast and --step contradict each other.")
    person = person_at_terminal(no_input=no_input) and sys.stdout.isatty()
    if step and not person:
        raise click.UsageError("--step waits for keys, and there is no terminal to read them from.")
    return DemoNarrator(model=model, fast=fast, step=step, person=person, config_dir=config_dir).run()


class DemoNarrator:
    """Narrator of one demo.

    Args:
        model: model of the coding agents; None for the prepared replies.
        fast: skip all pauses.
        step: wait for Enter before each scene.
        person: the terminal can ask its user.
        config_dir: configuration directory of a live demo.
    """

    def __init__(self, *, model: str | None, fast: bool, step: bool, person: bool, config_dir: str | None) -> None:
        self._model = model
        self._fast = fast
        self._step = step
        self._person = person
        self._config_dir = config_dir
        self._coloured = False
        self._scenes = 0
        self._missing = ""

    def run(self) -> int:
        """Run the story, or continue an interrupted demo; return the exit code of its run, 0 if the tests pass."""
        from ..render.text import colours

        self._coloured = colours(sys.stdout)
        if self._model is not None:
            _check(self._model, self._config_dir)
        self._print(PREPARED if self._model is None else LIVE.format(model=self._model), "title")
        note = self._release_note()
        directory, run = _interrupted(live=self._model is not None)
        if directory is not None:
            self._print(f"\nAn earlier demo was interrupted; its run {run} is continued.")
            code = self._continue(directory, run, note=note)
            if code is not None:
                return code
            self._print("It cannot be continued, so a new one begins.")
        directory = self._create()
        self._print(f"\n{directory}/repository has a program, and a test that fails.")
        code = self._continue(directory, "", note=note)
        return 1 if code is None else code

    def _continue(self, directory: Path, run: str, *, note: bool) -> int | None:
        """Run the scenes from a new run (`run` is empty) or an interrupted one. Return None if it cannot be resumed."""
        demo = DemoDirectory(directory, environ=self._environ(directory), person=self._person)
        try:
            code, begun, killed = self._run_scenes(demo, run, note=note)
        except KeyboardInterrupt:
            demo.interrupted()
            code, begun, killed = _INTERRUPTED, "?", False
        if not begun:
            return None if run else code
        if code > _SIGNALLED:
            self._print(f"\nInterrupted. `{_program()} demo` continues it.")
            return code
        self._end(demo, begun, code, killed=killed, note=note)
        return code

    # --- scenes ---------------------------------------------------------------------------------------------

    def _run_scenes(self, demo: DemoDirectory, run: str, *, note: bool) -> tuple[int, str, bool]:
        """Execute the run to its end, with a kill at the first question.

        Returns:
            Exit code, run id ("" if no run started), and whether the process was killed.
        """
        killed, about = False, ""
        while True:
            if run:
                words = ["resume", run]
                self._scene("The run continues", words, f"Finished steps are not repeated. {about}")
            else:
                words = self._first(note=note)
                intro = "`lead` sends `reader` and `tester` to look, and asks before it changes a file."
                if self._person:
                    intro += "\nNo need to answer yet: its process is killed while it asks."
                self._scene("Three agents at work", words, intro)
            process = demo.start(words)
            self._print(f"[process {process.pid}]", "dim")
            begun = process.run_id()
            if not begun:
                return process.wait(), "", killed
            run = begun
            question = process.until_question()
            if question and not killed:
                self._pause()
                if process.is_alive():
                    killed = True
                    answered = process.has_answer(question)  # the user may answer before the kill
                    self._kill(process, question, answered=answered)
                    about = "Your answer counts." if answered else "The question is the same."
                    # A kill right after the question can precede its row on the disk. Then the question comes again.
                    if not self._person and not answered and self._answer(demo, question):
                        about = "It finds the answer that was left for it."
                    continue
            elif question and not self._person:  # a live model may ask more than once
                process.end()
                self._answer(demo, question)
                continue
            code = process.wait()
            return code, run, killed

    def _first(self, *, note: bool) -> list[str]:
        words = ["run", "../agents/fix-tests", "--model", self._model or CASSETTE, "--allow", "execute_command"]
        return [*words, "--var", f"release_note={'yes' if note else 'no'}"]

    def _kill(self, process: RunProcess, question: str, *, answered: bool) -> None:
        process.kill()
        self._scenes += 1
        self._print("")
        self._rule(f"{self._scenes}. kill -9 {process.pid}")
        if answered:
            self._print("Its process is gone, just after your answer.")
            return
        self._print(f"Its process is gone, in the middle of the question {question}.")

    def _answer(self, demo: DemoDirectory, question: str) -> bool:
        """Store the answer for the interrupted run. Return False if the journal does not have the question."""
        words = ["answer", question, ANSWER]
        self._print("Nobody can be asked here, so the demo answers by itself, while no process runs:")
        self._command(words)
        return demo.execute(words)

    def _end(self, demo: DemoDirectory, run: str, code: int, *, killed: bool, note: bool) -> None:
        used = demo.used()
        self._scenes += 1
        self._print("")
        self._rule(f"{self._scenes}. What it took")
        if used is not None:
            tokens_in, tokens_out, cost, priced = used
            money = f"${cost:.4f}" if priced else "a cost that is not known"
            self._print(f"{tokens_in:,} tokens in, {tokens_out:,} tokens out, {money}.")
            if self._model is None:
                self._print(f"That is the price of {PRICED_AS}; prepared replies cost nothing.")
        if not killed:
            self._print("No question was asked in this process, so nothing was killed.")
        self._print(f"The repository: {demo.directory}/repository")
        if code:
            self._print(f"The tests do not pass (exit code {code}). What the agents did:", "warning")
            self._print(f"  {_program()} show {run}")
            return
        if not note:
            self._print("Skipped: a release note, written by a very small model on this machine.")
            self._print(self._missing)
        if self._model is None and (offer := _offer()):
            self._print(offer)
        self._print("\nTry next:", "title")
        commands = [(f"{_program()} {command.format(run=run)}", gives) for command, gives in NEXT]
        width = max(len(command) for command, _ in commands)
        for command, gives in commands:
            self._print(f"  {command:<{width}}  {gives}")

    # --- preparations ---------------------------------------------------------------------------------------

    def _create(self) -> Path:
        """Create the demo directory. With `fast`, its replies take no time."""
        directory = Path(tempfile.mkdtemp(prefix=PREFIX))
        for name in ("agents", "repository"):
            shutil.copytree(STORY / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        replies = (STORY / "replies.jsonl").read_text(encoding="utf-8")
        if self._fast:
            replies = re.sub(r',"seconds":[0-9.]+', "", replies)
        (directory / "replies.jsonl").write_text(replies, encoding="utf-8")
        (directory / "config").mkdir()
        if git := shutil.which("git"):
            for words in (["init", "-q"], ["add", "-A"], [*_AUTHOR, "commit", "-q", "-m", "A program with a mistake"]):
                subprocess.run([git, *words], cwd=directory / "repository", check=False, capture_output=True)
        return directory

    def _environ(self, directory: Path) -> dict[str, str]:
        """Return the environment of the processes. The user's settings apply only to a live demo."""
        environ = dict(os.environ)
        if self._model is None:
            # Otherwise settings of the user would change the prepared story.
            for name in [name for name in environ if name.startswith(PREFIXES) and not name.endswith("_DIR")]:
                del environ[name]
            environ["CALLBOARD_CONFIG_DIR"] = str(directory / "config")
        elif self._config_dir is not None:
            environ["CALLBOARD_CONFIG_DIR"] = str(Path(self._config_dir).absolute())
        return environ

    def _release_note(self) -> bool:
        """Return whether the local model can be used. Fetch its weights if they are missing."""
        from ...actors.work.models import weights
        from ...actors.work.models.engines import require_engine
        from ...supervisors.installation import install_command

        try:
            require_engine()
        except ConfigError:
            self._missing = f"It needs the extra `local`, which is not installed:\n  {install_command('local')}"
            return False
        if not weights.KNOWN[weights.DEFAULT].are_in(weights.directory(os.environ)):
            from ..actions.models import pull_weights

            try:
                pull_weights(weights.DEFAULT, quiet=False)
            except CallboardError as error:
                self._missing = f"Its weights could not be fetched: {error}"
                return False
        return True

    # --- the screen -----------------------------------------------------------------------------------------

    def _scene(self, title: str, words: list[str], about: str) -> None:
        self._scenes += 1
        self._print("")
        self._rule(f"{self._scenes}. {title}")
        self._print(about)
        self._command(words)
        if self._step:
            sys.stdout.write("Enter continues")
            sys.stdout.flush()
            sys.stdin.readline()

    def _command(self, words: list[str]) -> None:
        lines = [f"$ callboard {words[0]}"]
        for word in map(shlex.quote, words[1:]):
            if len(lines[-1]) + len(word) > _COLUMNS - 4:
                lines[-1] += " \\"
                lines.append(f"    {word}")
            else:
                lines[-1] += f" {word}"
        for line in lines:
            self._print(line, "added")

    def _rule(self, text: str) -> None:
        line = "─" if (sys.stdout.encoding or "").lower().startswith("utf") else "-"
        self._print(f"{line * 2} {text} ".ljust(_COLUMNS - 1, line), "title")

    def _print(self, text: str, style: str = "text") -> None:
        from ..render.text import paint

        for line in text.split("\n"):
            # A command stays on one line, so that it can be copied.
            rows = [line] if line.startswith(("  ", "$ ")) else textwrap.wrap(line, _COLUMNS - 1, **_WRAPPING) or [""]
            for row in rows:
                sys.stdout.write((paint(row, style) if self._coloured and row else row) + "\n")
        sys.stdout.flush()

    def _pause(self) -> None:
        if not self._fast:
            time.sleep(_PACE)


_CALLBOARD = (sys.executable, "-P", "-m", "callboard.cli")
"""The program. `-P`: do not import modules from the repository of the story."""

_SIGNALLED, _INTERRUPTED = 128, 130
"""Exit codes above the first mean that a signal ended the process. The second is that of Ctrl-C."""

_WRAPPING: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
"""Options of textwrap: paths and commands stay whole."""

# The user's git may have no author, or sign every commit and ask for a passphrase.
_AUTHOR = ("-c", "user.name=Demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false")


class DemoDirectory:
    """The directory of one demo, and the commands that run in it.

    Args:
        directory: path of the directory.
        environ: environment of the processes.
        person: processes ask at this terminal; otherwise each gets a pseudoterminal.
    """

    def __init__(self, directory: Path, *, environ: dict[str, str], person: bool) -> None:
        self.directory = directory
        self._file = directory / "reports.jsonl"
        self._environ = {**environ, "CALLBOARD_DEMO": str(self._file)}
        self._person = person
        self._process: RunProcess | None = None

    def start(self, words: list[str]) -> RunProcess:
        """Empty the report file and start a command that executes the run."""
        self._file.write_text("")
        argv, cwd = [*_CALLBOARD, *words], self.directory / "repository"
        self._process = RunProcess(argv, cwd, self._environ, self._file, person=self._person)
        return self._process

    def interrupted(self) -> None:
        """After Ctrl-C, wait for the end of the process.

        At the same terminal it has received the signal too. With a pseudoterminal it has not, and gets SIGTERM.
        """
        if self._process is not None and self._process.is_alive():
            if self._person:
                self._process.wait()
            else:
                self._process.end()

    def execute(self, words: list[str]) -> bool:
        """Execute another command without printing its output. Return whether it succeeded."""
        # The variable selects the demo's display and its report file, which belong to the process of the run.
        environ = {name: value for name, value in self._environ.items() if name != "CALLBOARD_DEMO"}
        done = subprocess.run(
            [*_CALLBOARD, *words],
            cwd=self.directory / "repository",
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return done.returncode == 0

    def used(self) -> tuple[int, int, float, bool] | None:
        """Return input tokens, output tokens, cost in USD, and whether all prices are known; None without a request."""
        found = [words[1:] for words in reports(self._file) if words[0] == "used"]
        return None if not found else (int(found[-1][0]), int(found[-1][1]), float(found[-1][2]), bool(found[-1][3]))


class RunProcess:
    """A process that executes the run, and its reports."""

    def __init__(self, argv: list[str], cwd: Path, environ: Mapping[str, str], file: Path, *, person: bool) -> None:
        self._file = file
        self._modes = _modes() if person else None
        self._master: int | None = None
        libc = ctypes.CDLL(None)  # loaded before the fork: loading after it is not safe

        def dies_with_us() -> None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

        if person:
            self._process = subprocess.Popen(argv, cwd=cwd, env=environ, preexec_fn=dies_with_us)
        else:
            self._master, slave = os.openpty()
            # A new pseudoterminal has 0 rows and 0 columns.
            _sized(slave)
            # `dumb`: its output is copied to a stdout that may be a file, so nothing may be redrawn.
            quiet = {**environ, "TERM": "dumb"}
            self._process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=quiet,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                # Ctrl-C at the demo's terminal does not reach it: `DemoDirectory.interrupted` ends it.
                start_new_session=True,
                preexec_fn=dies_with_us,
            )
            os.close(slave)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def run_id(self) -> str:
        """Wait for the id of the run. Return "" if the process ends before it has one."""
        while True:
            # Before the file is read: a process that has ended by now has written all its reports.
            over = self._process.poll() is not None
            for words in reports(self._file):
                if words[0] == "run":
                    return str(words[1])
            if over:
                return ""
            self._wait_a_little()

    def until_question(self) -> str:
        """Wait for an open question and return its id. Return "" if the process ends first."""
        while True:
            over = self._process.poll() is not None
            words = reports(self._file)
            answered = {each[1] for each in words if each[0] == "answered"}
            asked = [each[1] for each in words if each[0] == "question" and each[1] not in answered]
            if asked:
                return str(asked[-1])
            if over:
                return ""
            self._wait_a_little()

    def is_alive(self) -> bool:
        """Copy pending output of the pseudoterminal to stdout; return True if the process is still running."""
        self._relay(0.0)
        return self._process.poll() is None

    def has_answer(self, question: str) -> bool:
        """Return whether the question was answered."""
        return any(words[:2] == ["answered", question] for words in reports(self._file))

    def kill(self) -> None:
        """Send SIGKILL and wait."""
        self._process.kill()
        self._ended()

    def end(self) -> None:
        """Send SIGTERM and wait. The run can be resumed."""
        self._process.send_signal(signal.SIGTERM)
        self.wait()

    def wait(self) -> int:
        """Wait for the end and return the exit code; 128 plus the number of the signal that ended the process."""
        while self._process.poll() is None:
            with suppress(KeyboardInterrupt):  # the process at the same terminal receives it too, and ends by itself
                self._wait_a_little()
        self._ended()
        code = self._process.returncode
        # As a shell reports a process that a signal has ended; Popen has the negative number.
        return code if code >= 0 else 128 - code

    def _ended(self) -> None:
        self._process.wait()
        if self._master is not None:
            self._relay(0.0)
            os.close(self._master)
            self._master = None
        if self._modes is not None:
            _restore(self._modes)

    def _wait_a_little(self) -> None:
        if self._master is None:
            time.sleep(_LOOK)
        else:
            self._relay(_LOOK)

    def _relay(self, seconds: float) -> None:
        """Copy the output of the pseudoterminal to stdout, without escape sequences."""
        import select

        while self._master is not None and select.select([self._master], [], [], seconds)[0]:
            try:
                data = os.read(self._master, 65_536)
            except OSError:  # EIO: its other end is closed
                data = b""
            if not data:
                # At the end of the output `select` returns at once, and the caller's loop would spin.
                time.sleep(seconds)
                return
            sys.stdout.write(_CONTROL.sub(b"", data).decode(errors="replace"))
            sys.stdout.flush()
            seconds = 0.0


def reports(file: Path) -> list[list[Any]]:
    """Return the reports in the file. An incomplete line is skipped."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def _interrupted(*, live: bool) -> tuple[Path | None, str]:
    """Return directory and run id of the newest interrupted demo, or None and ""."""
    from ...actors.runs.stored_runs import interrupted

    for run in reversed(interrupted(os.environ)):
        cwd = Path(run.about.cwd) if run.about is not None else Path()
        directory = cwd.parent
        if cwd.name != "repository" or not directory.name.startswith(PREFIX) or run.why_not:
            continue
        assert run.about is not None
        # A demo with prepared replies has a configuration directory of its own (`_environ`).
        is_live = Path(run.about.config_dir) != directory / "config"
        if directory.is_dir() and is_live == live:
            return directory, run.run
    return None, ""


def _check(model: str, config_dir: str | None) -> None:
    """Raise `ConfigError` or `CredentialsError` if there is no such model, or no key for it."""
    from ...actors.io.directories import config_dir as configured
    from ...actors.io.settings import load_settings
    from ...actors.io.vault.vault import NotFetched
    from ...actors.work.models.catalog import ModelCatalog

    settings, _problems = load_settings(configured(config_dir, os.environ)[0])
    with suppress(NotFetched):  # the run fetches its secrets
        ModelCatalog(settings, os.environ).targets(model)


def _offer() -> str:
    """Return lines that offer a live demo with a model of a key or of a local server, or ""."""
    from ...actors.runs.setup.detect import offers

    for offer in offers():
        if offer.model and offer.client.type != "local":
            first = f"{_program()} setup\n  " if offer.needs_entry else ""
            found = f"{offer.title} ({offer.why}) can run it live:"
            return f"{found}\n  {first}{_program()} demo --model {shlex.quote(offer.model)}"
    return ""


def _program() -> str:
    """Return the program as the user can type it: without an activated environment, its path."""
    return "callboard" if shutil.which("callboard") else shlex.quote(sys.argv[0])


def _sized(terminal: int) -> None:
    import fcntl
    import struct
    import termios

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))


def _modes() -> list[Any]:
    import termios

    return termios.tcgetattr(sys.stdin)


def _restore(modes: list[Any]) -> None:
    """Restore the terminal modes and remove the rest of the question from the screen."""
    import termios

    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, modes)
    sys.stdout.write(_RESET)
    sys.stdout.flush()
