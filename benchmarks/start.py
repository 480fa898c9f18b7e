"""What starting costs: CPU time of whole processes, as multiples of `python -c pass`.

Budget: `callboard --help` and a completion at most 5 x. Each command runs in turn, many rounds, so that a busy
machine weighs on all of them alike; the median of the user + system time of the child is compared.

    python benchmarks/start.py [rounds]
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

BUDGET = 5.0
CALLBOARD = str(Path(sys.executable).with_name("callboard"))
AGENT = str(Path(__file__).parent.parent / "examples" / "agents" / "script")

COMPLETION = {"_CALLBOARD_COMPLETE": "bash_complete", "COMP_WORDS": "callboard run --", "COMP_CWORD": "2"}

COMMANDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "python -c pass": ([sys.executable, "-c", "pass"], {}),
    "callboard --help": ([CALLBOARD, "--help"], {}),
    "callboard run --help": ([CALLBOARD, "run", "--help"], {}),
    "completion of a flag": ([CALLBOARD], COMPLETION),
    "python -c 'import callboard'": ([sys.executable, "-c", "import callboard"], {}),
    "python -c 'import trio'": ([sys.executable, "-c", "import trio"], {}),
    "callboard validate (no budget)": ([CALLBOARD, "validate", AGENT], {}),
    "callboard run, two scripts (no budget)": ([CALLBOARD, "run", "-q", AGENT, "a b c"], {}),
}
WITHIN_BUDGET = ("callboard --help", "callboard run --help", "completion of a flag", "python -c 'import callboard'")


def cpu_seconds(argv: list[str], environment: dict[str, str]) -> float:
    """User and system time of one process and of what it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        argv, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Prints the table; 1 if a budget was not kept."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds + 1):
        for name, (argv, environment) in COMMANDS.items():
            times[name].append(cpu_seconds(argv, environment))
    median = {name: statistics.median(measured[1:]) for name, measured in times.items()}
    floor = median["python -c pass"]
    kept = True
    for name, seconds in median.items():
        verdict = ""
        if name in WITHIN_BUDGET:
            fits = seconds <= BUDGET * floor
            kept = kept and fits
            verdict = f"  budget {BUDGET:.0f} x: {'kept' if fits else 'NOT KEPT'}"
        print(f"{name:<40} {seconds * 1000:7.1f} ms  {seconds / floor:5.2f} x{verdict}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
