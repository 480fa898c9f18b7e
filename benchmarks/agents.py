"""What an agent costs: 1,000 at once with a tool call each, beside a hand-written client and the openai SDK.

    python benchmarks/agents.py [--rounds N] [--scale F]

The model is a fake server in a process of its own that answers after 50 ms: first with a call of the agent's tool, and
when it has the tool's result, with text. Ours are whole runs of an agent with a Python function as its tool, and one
row of agents whose tool is a process. The hand-written client does the same by hand; it is the floor.
docs/benchmarks.md explains the rows.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness import Budget, Case, Contender, options, run_table

CASES = [
    Case(
        "at_once",
        "an agent, 1,000 at once",
        1_000,
        unit="CPU ms",
        budgets=(
            Budget("≤ 4 × hand-written", 4.0, "trio"),
            Budget("≤ 1/8 × the openai SDK alone", 1 / 8, "openai"),
        ),
    ),
    Case(
        "durable",
        "the same, durable",
        1_000,
        unit="CPU ms",
        budgets=(Budget("≤ 1.15 × ephemeral", 1.15, "callboard", "at_once", goal=1.05),),
    ),
    Case("few", "an agent, 20 at once", 20, unit="CPU ms"),
    Case(
        "twice_as_many",
        "an agent, 2,000 at once",
        2_000,
        unit="CPU ms",
        budgets=(Budget("≤ 1.3 × of 20 at once", 1.3, "callboard", "few"),),
    ),
    Case("limiter", "a request passes the limiter", 10_000, unit="µs", budgets=(Budget("≤ 15 µs", 15.0),)),
    Case("memory", "an agent waiting, of 1,000", 1_000, unit="KB", budgets=(Budget("≤ 40 KB", 40.0),)),
    Case("processes", "an agent, 100 at once, tool a process", 100, unit="wall ms", best=True),
    Case("chain", "chain of 20 llm nodes", 20, unit="wall s", best=True, budgets=(Budget("≤ 1.040 s", 1.040),)),
    Case("durable_chain", "the same, durable", 20, unit="wall s", best=True, budgets=(Budget("≤ 1.040 s", 1.040),)),
]

CONTENDERS = ("callboard", "trio", "openai")
IN_FLIGHT = 200

LLM = """\
  {id}:
    type: llm
    prompt: "Say something about: {{{{{source}}}}}"
    state_updates: {{ {id}: "{{{{output}}}}" }}
    next: {next}
"""
CLERK = """\
name: clerk
instructions: You answer questions about orders. Look the order up before you answer.
can_ask_user: false
"""
TOOLS = """\
# @cmd Looks an order up.
# @option --order! <INT> its number.
lookup() {
    echo "Order $argc_order is on its way." >> "$LLM_OUTPUT"
}
"""
FAN = """\
name: fan
version: "1.0"
start: fan
settings: {{ max_concurrency: {n} }}
initial_state: {{ items: {items} }}
nodes:
  fan: {{ type: map, over: "{{{{items}}}}", as: item, branch: each, collect_into: all, next: end }}
  each: {{ type: llm, prompt: "Say something about {{{{item}}}}" }}
  end: {{ type: end, output: done }}
"""


def chain_of(name: str, length: int) -> str:
    """A graph.yaml of so many llm nodes in a row."""
    ids = ["initial_prompt", *(f"n{number}" for number in range(length)), "end"]
    nodes = "".join(
        LLM.format(id=id, source=before, next=after)
        for before, id, after in zip(ids[:-2], ids[1:-1], ids[2:], strict=True)
    )
    head = f'name: {name}\nversion: "1.0"\nstart: n0\nnodes:\n'
    return f'{head}{nodes}  end: {{ type: end, output: "{{{{{ids[-2]}}}}}" }}\n'


def config(directory: Path, url: str, length: int = 20) -> Path:
    """A configuration directory whose model is the server at `url`; `length` is that of the chain."""
    fan = FAN.format(n=IN_FLIGHT, items=list(range(IN_FLIGHT)))
    files = {"chain/graph.yaml": chain_of("chain", length), "fan/graph.yaml": fan}
    files |= {"clerk/config.yaml": CLERK, "clerk/tools.sh": TOOLS}
    for name, text in files.items():
        path = directory / "agents" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    client = f"  - {{ type: openai-compatible, name: fake, api_base: '{url}/v1', api_key: x }}\n"
    (directory / "config.yaml").write_text(f"model: fake:fake\nclients:\n{client}")
    return directory


@contextmanager
def server(delay: float, announce: int = 0) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The fake model's URL and process."""
    script = Path(__file__).parent / "harness" / "fake_openai.py"
    process = subprocess.Popen(
        [sys.executable, str(script), str(delay), str(announce)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}", process
    finally:
        process.terminate()
        process.wait()


def control_c(directory: Path) -> bool:
    """SIGINT to a command line that has 200 requests in flight; whether its end is within the budget."""
    with server(3600, IN_FLIGHT) as (url, fake):
        assert fake.stdin is not None
        assert fake.stdout is not None
        where = config(directory, url)
        process = subprocess.Popen(
            [Path(sys.executable).with_name("callboard"), "run", "-q", "--config-dir", str(where), "fan", "x"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        fake.stdout.readline()  # all are in flight
        began = time.perf_counter()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        seconds = time.perf_counter() - began
        fake.stdin.close()
        counts = json.loads(fake.stdout.readline())
    lines = errors.splitlines()
    print(f"\nCtrl-C with {counts['most']} requests in flight: exit {process.returncode} after {seconds:.2f} s, "
          f"{len(lines)} lines on stderr, {counts['open']} requests left open at the server")  # fmt: skip
    met = seconds <= 0.5 and len(lines) <= 3 and process.returncode == 130
    print(f"  budget: ≤ 0.5 s, ≤ 3 lines, exit 130: {'met' if met else 'NOT MET'}")
    for line in lines[-3:]:
        print(f"    | {line}")
    return met


def main() -> int:
    """Prints the table; 1 if a budget was missed."""
    given = options(__doc__, rounds=3)
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fast, _ = stack.enter_context(server(0.05))
        slow, _ = stack.enter_context(server(3600))
        os.environ |= {"BENCH_URL": fast, "BENCH_URL_SLOW": slow}
        cases = [case.scaled(given.scale, least=4) for case in CASES]
        os.environ["BENCH_CONFIG"] = str(config(temporary / "fast", fast, cases[-1].n))
        os.environ["BENCH_TOOLS"] = str(temporary / "fast/agents/clerk/tools.sh")
        os.environ["BENCH_CONFIG_SLOW"] = str(config(temporary / "slow", slow))
        contenders = [Contender(name, f"agents_{name}") for name in CONTENDERS]
        missed = run_table("agents", contenders, cases, given.rounds)
        met = control_c(temporary / "ctrl-c")
    return 1 if missed or not met else 0


if __name__ == "__main__":
    sys.exit(main())
