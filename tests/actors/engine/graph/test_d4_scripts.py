"""Scripts: cases 39 to 46 of Loki's conformance list, and the environment a script sees, to the byte."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from support.agent_runs import AgentRunner
from support.messages import fragment, has_message
from support.tool_bench import npx_has_tsx
from support.waiting import is_written, jump_when

import callboard
from callboard.actors.work.library import PROMPT_UTILS

OK = "e: {type: end, output: done}"


async def test_case_39_keys_merge_with_their_types_and_next_routes(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: s
        nodes:
          s: {type: script, script: s.sh, next: other, routes: [approve]}
          approve: {type: end, output: "approved at {{quality}}"}
          other: {type: end, output: other}
        """,
        s="""echo '{"quality": 0.85, "_next": "approve"}'""",
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.output == "approved at 0.85"
    assert outcome.state == {"initial_prompt": "", "quality": 0.85}
    assert outcome.order == ["s", "approve"]


NESTED = """python3 -c 'print("{{\\"x\\":" + "[" * {0} + "]" * {0} + "}}")'"""


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("true", fragment("engine.graph.nodes.script._parse.3", script="s.sh")),
        ("echo '[1]'", "Script output must be a JSON object, not array or primitive"),
        ("echo '\"x\"'", "Script output must be a JSON object, not array or primitive"),
        ("echo oops", "Script output must be valid JSON"),
        ("echo starting; echo '{}'", "Script output must be valid JSON"),
        ("echo '{} {}'", "Script output must be valid JSON"),
        ('printf \'{"x": "\\377"}\'', "Script output must be valid JSON"),
        (NESTED.format(100_000), "lists and objects are nested more than 200 levels deep"),
        (NESTED.format(300), "lists and objects are nested more than 200 levels deep"),
    ],
)
@pytest.mark.sample(6)
async def test_case_40_stdout_must_be_one_json_object(
    agent_runner: AgentRunner, compat: str, script: str, text: str
) -> None:
    agent_runner.agent(
        f"""
        start: s
        nodes:
          s: {{type: script, script: s.sh, on_error: fail, next: e}}
          {OK}
        """,
        s=script,
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.status == "failed"
    assert outcome.exit_code == 1
    assert outcome.error is not None
    assert outcome.error.message.startswith("at node 's': ")
    assert text in outcome.error.message
    if "produced no output" not in text:
        assert has_message(outcome.error.message, "engine.graph.nodes.script._parse.2", script="s.sh")


async def test_case_41_failure_takes_the_fallback_and_merges_nothing(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: s
        nodes:
          s: {type: script, script: s.sh, fallback: f, state_updates: {done: "yes"}, next: e}
          e: {type: end, output: wrong}
          f: {type: end, output: "fallback {{x}}{{done}}"}
        """,
        s="""echo '{"x": 1}'; echo boom >&2; exit 3""",
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.output == "fallback "
    assert outcome.state == {"initial_prompt": ""}


FAILING = """
start: s
nodes:
  s: {type: script, script: s.sh, state_updates: {said: "{{output}}"}, next: e}
  e: {type: end, output: "went on: {{said}}"}
"""


async def test_case_41_without_fallback_standard_goes_to_next_with_the_error_as_output(
    agent_runner: AgentRunner,
) -> None:
    agent_runner.agent(FAILING, s="""echo '{"x": 1}'; echo boom >&2; exit 3""")
    outcome = await agent_runner.run(compat="standard")
    assert outcome.output == "went on: Script 's.sh' failed with exit code 3:\nboom"
    assert "x" not in outcome.state
    assert agent_runner.warnings == ["node_failed"]


async def test_case_41_without_fallback_loki_fails_the_run(agent_runner: AgentRunner) -> None:
    agent_runner.agent(FAILING, s="""echo '{"x": 1}'; echo boom >&2; exit 3""")
    outcome = await agent_runner.run(compat="loki")
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.message == "at node 's': Script 's.sh' failed with exit code 3:\nboom"
    assert (outcome.error.code, outcome.error.node, outcome.exit_code) == ("node_failed", "s", 1)
    assert outcome.state == {"initial_prompt": ""}


async def test_case_42_timeout_ends_the_script_and_its_whole_group(
    agent_runner: AgentRunner, compat: str, tmp_path: Path, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    agent_runner.agent(
        f"""
        start: s
        nodes:
          s: {{type: script, script: s.sh, timeout: 60, on_error: fail, next: e}}
          {OK}
        """,
        s=f"sleep 600 & echo $! > {tmp_path}/pid; wait",
    )
    nursery.start_soon(jump_when, mock_clock, partial(is_written, tmp_path / "pid"), 60)
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert has_message(outcome.error.message, "engine.graph.run._timeout_text.2", seconds="60")
    assert outcome.error.code == "timeout"
    assert outcome.exit_code == 4
    helper = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(helper, 0)


async def test_case_43_next_to_an_unknown_node_fails_at_the_next_step(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: s
        nodes:
          s: {type: script, script: s.sh, fallback: e, next: e}
          e: {type: end}
        """,
        s="""echo '{"_next": "ghost"}'""",
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert outcome.error.message == "Node 'ghost' not found in graph 'g'"
    assert (outcome.error.code, outcome.exit_code) == ("graph", 1)


async def test_case_43_next_that_is_no_text_is_ignored(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        f"""
        start: s
        nodes:
          s: {{type: script, script: s.sh, next: e}}
          {OK}
        """,
        s="""echo '{"_next": 5}'""",
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.output == "done"
    assert outcome.state == {"initial_prompt": ""}


@pytest.mark.parametrize(
    ("file", "text"),
    [("s.rb", "Unsupported script extension '.rb'"), ("script", "Script file has no file extension: 'script'")],
)
async def test_case_44_other_extensions_are_refused(
    agent_runner: AgentRunner, compat: str, file: str, text: str
) -> None:
    home = agent_runner.agent(
        f"""
        settings: {{validate_before_run: false}}
        start: s
        nodes:
          s: {{type: script, script: {file}, on_error: fail, next: e}}
          {OK}
        """
    )
    (home / file).write_text("puts 1")
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert text in outcome.error.message


async def test_a_missing_script_is_named(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        f"""
        settings: {{validate_before_run: false}}
        start: s
        nodes:
          s: {{type: script, script: gone.sh, on_error: fail, next: e}}
          {OK}
        """
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert f"Script file not found: '{agent_runner.config_dir}/agents/g/gone.sh'" in outcome.error.message


async def test_case_45_variables_reach_scripts_and_not_the_state(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        variables:
          - {name: project_dir, default: "."}
          - {name: two-words, default: b}
        start: s
        nodes:
          s: {type: script, script: s.sh, next: e}
          e: {type: end, output: "{{seen}}|{{project_dir}}"}
        """,
        s="""printf '{"seen": "%s %s"}' "$LLM_AGENT_VAR_PROJECT_DIR" "$LLM_AGENT_VAR_TWO_WORDS" """,
    )
    assert (await agent_runner.run(compat=compat)).output == ". b|"
    given = await agent_runner.run(compat=compat, variables={"project_dir": "/x y"})
    assert given.output == "/x y b|"
    assert "project_dir" not in given.state


async def test_case_46_a_script_runs_where_the_caller_stands_and_lies_in_its_agent(
    agent_runner: AgentRunner, compat: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "somewhere"
    here.mkdir()
    monkeypatch.chdir(here)
    home = agent_runner.agent(
        """
        start: s
        nodes:
          s: {type: script, script: sub/s.sh, next: e}
          e: {type: end, output: "{{cwd}}|{{zero}}"}
        """
    )
    (home / "sub").mkdir()
    (home / "sub" / "s.sh").write_text("""printf '{"cwd": "%s", "zero": "%s"}' "$PWD" "$0" """)
    assert (await agent_runner.run(compat=compat)).output == f"{here}|{home}/sub/s.sh"


# --- the environment ------------------------------------------------------------------------------------------

DUMP = """jq -n '{env: $ENV}'"""


async def test_a_script_sees_the_environment_of_loki(
    agent_runner: AgentRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_OUTSIDE", "kept")
    monkeypatch.setenv("GRAPH_STATE_FILE", "/of/an/outer/run")
    home = agent_runner.agent(
        """
        initial_state: {n: 1}
        start: s
        nodes:
          s: {type: script, script: s.sh, next: e}
          e: {type: end}
        """,
        s=DUMP,
    )
    env = (await agent_runner.run("hi")).state["env"]
    assert env["LLM_PROMPT_UTILS_FILE"] == str(PROMPT_UTILS)
    config = agent_runner.config_dir
    own = config / "functions" / "utils" / "prompt-utils.sh"
    own.parent.mkdir(parents=True)
    own.touch()
    env = (await agent_runner.run("hi")).state["env"]
    assert json.loads(env["GRAPH_STATE"]) == {"n": 1, "initial_prompt": "hi"}
    assert "GRAPH_STATE_FILE" not in env
    assert env["LLM_ROOT_DIR"] == str(config)
    assert env["LLM_PROMPT_UTILS_FILE"] == str(own)
    assert env["LLM_AGENT_DATA_DIR"] == str(home)
    assert (env["CLICOLOR_FORCE"], env["FORCE_COLOR"]) == ("1", "1")
    assert env["PATH"] == f"{config}/functions/bin{os.pathsep}{os.environ['PATH']}"
    assert env["FROM_OUTSIDE"] == "kept"


async def test_a_script_reads_the_end_of_its_input_at_once(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        start: s
        nodes:
          s: {type: script, script: s.sh, next: e}
          e: {type: end, output: "{{stdin}}"}
        """,
        s="""printf '{"stdin": "%s"}' "$(readlink /proc/$$/fd/0)" """,
    )
    assert (await agent_runner.run()).output == "/dev/null"


SIZES = """
initial_state: {pad: ""}
start: s
nodes:
  s: {type: script, script: s.sh, next: e}
  e: {type: end, output: "{{inline}} {{in_file}} {{name}}"}
"""
SIZE_SCRIPT = """
file_size=0; [ -z "${GRAPH_STATE_FILE:-}" ] || file_size=$(wc -c < "$GRAPH_STATE_FILE")
printf '{"inline": %s, "in_file": %s, "name": "%s"}' "${#GRAPH_STATE}" "$file_size" "${GRAPH_STATE_FILE:-}"
"""


async def test_case_38_state_of_32768_bytes_travels_inline(agent_runner: AgentRunner) -> None:
    agent_runner.agent(SIZES, s=SIZE_SCRIPT)
    padding = 32_768 - len('{"pad":"","initial_prompt":""}')
    outcome = await agent_runner.run(state={"pad": "x" * padding})
    assert outcome.output == "32768 0 "


async def test_case_38_one_byte_more_travels_in_a_file_that_is_gone_afterwards(agent_runner: AgentRunner) -> None:
    agent_runner.agent(SIZES, s=SIZE_SCRIPT)
    padding = 32_769 - len('{"pad":"","initial_prompt":""}')
    inline, in_file, name = (await agent_runner.run(state={"pad": "x" * padding})).output.split()
    assert (inline, in_file) == ("0", "32769")
    assert not Path(name).exists()


async def test_case_38_bytes_are_counted_not_characters(agent_runner: AgentRunner) -> None:
    agent_runner.agent(SIZES, s=SIZE_SCRIPT)
    padding = 32_768 - len('{"pad":"","initial_prompt":""}')
    outcome = await agent_runner.run(state={"pad": "é" + "x" * (padding - 1)})
    assert outcome.output.split()[:2] == ["0", "32769"]


@pytest.mark.parametrize("ending", ["exit 1", "sleep 600"])
async def test_case_38_the_state_file_is_gone_after_a_failure_and_a_timeout(
    agent_runner: AgentRunner, tmp_path: Path, ending: str, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    agent_runner.agent(
        """
        start: s
        nodes:
          s: {type: script, script: s.sh, timeout: 60, on_error: fail, next: e}
          e: {type: end}
        """,
        s=f"""echo "$GRAPH_STATE_FILE" > {tmp_path}/name; {ending}""",
    )
    nursery.start_soon(jump_when, mock_clock, partial(is_written, tmp_path / "name"), 60)
    outcome = await agent_runner.run(state={"pad": "x" * 40_000})
    assert outcome.status == "failed"
    name = (tmp_path / "name").read_text().strip()
    assert name.startswith("/")
    assert not Path(name).exists()


async def test_numbers_of_any_size_pass_through_the_state(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        start: s
        nodes:
          s: {type: script, script: s.sh, next: e}
          e: {type: end, output: "{{big}} {{bigger}}"}
        """,
        s="""printf '{"bigger": %s0}' "$(printf %s "$GRAPH_STATE" | grep -o '[0-9]\\{20,\\}')" """,
    )
    assert (await agent_runner.run(state={"big": 2**70})).output == "1180591620717411303424 11805916207174113034240"


async def test_a_script_that_dies_of_a_signal_says_which(agent_runner: AgentRunner) -> None:
    agent_runner.agent(FAILING, s="kill -9 $$")
    assert (await agent_runner.run()).output == "went on: Script 's.sh' failed with signal 9"


async def test_what_a_script_writes_to_stderr_arrives_line_by_line_as_events(agent_runner: AgentRunner) -> None:
    agent_runner.agent(FAILING, s="echo one >&2; echo two >&2; echo '{}'")
    await agent_runner.run()
    assert [data.text for data in agent_runner.of("tool.call.delta")] == ["one", "two"]
    assert [data.status for data in agent_runner.of("tool.call.finished")] == [0]


async def test_python_scripts_run_with_python3(agent_runner: AgentRunner) -> None:
    home = agent_runner.agent(
        """
        start: s
        nodes:
          s: {type: script, script: s.py, next: e}
          e: {type: end, output: "{{n}}"}
        """
    )
    (home / "s.py").write_text(
        "#!/bin/false\nimport json, os\nprint(json.dumps({'n': json.loads(os.environ['GRAPH_STATE'])['k'] + 1}))\n"
    )
    assert (await agent_runner.run(state={"k": 41})).output == "42"


TYPESCRIPT = """
start: s
nodes:
  s: {type: script, script: s.ts, on_error: fail, next: e}
  e: {type: end, output: "{{n}}"}
"""


async def test_typescript_scripts_are_run_by_npx_tsx(
    agent_runner: AgentRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = agent_runner.agent(TYPESCRIPT)
    (home / "s.ts").write_text("const n: number = 1; console.log(JSON.stringify({n}))")
    bin = tmp_path / "bin"
    bin.mkdir()
    # What matters here is how it is called; the real thing runs below, where it is installed.
    (bin / "npx").write_text("""#!/bin/sh\n[ "$1" = tsx ] && printf '{"n": "%s"}' "$2"\n""")
    (bin / "npx").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin}{os.pathsep}{os.environ['PATH']}")
    assert (await agent_runner.run()).output == f"{home}/s.ts"


async def test_typescript_scripts_run(agent_runner: AgentRunner) -> None:
    if not npx_has_tsx():
        pytest.skip("needs Node with npx and tsx (npm install -g tsx)")
    home = agent_runner.agent(TYPESCRIPT)
    (home / "s.ts").write_text("const n: number = 1; console.log(JSON.stringify({n}))")
    assert (await agent_runner.run()).output == "1"


async def test_a_missing_interpreter_is_named(
    agent_runner: AgentRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = agent_runner.agent(TYPESCRIPT)
    (home / "s.ts").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome: callboard.Outcome = await agent_runner.run()
    assert outcome.error is not None
    assert has_message(outcome.error.message, "engine.graph.nodes.script._command.4", script="s.ts", interpreter="npx")


async def test_a_script_with_line_ends_of_windows_runs(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        f"""
        start: s
        nodes:
          s: {{type: script, script: s.sh, next: e}}
          {OK}
        """,
        s='set -euo pipefail\r\nif true; then\r\n  echo \'{"x": "one"}\'\r\nfi\r\n',
    )
    outcome = await agent_runner.run()
    assert outcome.state["x"] == "one"
