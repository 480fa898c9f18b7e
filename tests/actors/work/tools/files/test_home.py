"""The environment that tools are promised, and the `.env` files behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tool_bench import Bench

from callboard.actors.io.directories import root_dir
from callboard.actors.io.environment import load_env_file
from callboard.actors.work.tools.files.environment import (
    LONGEST_VARIABLE,
    PROMPT_UTILS,
    environment,
    file_name,
    tool_environ,
)
from callboard.actors.work.tools.registry import ToolOptions, ToolRegistry
from callboard.protocol.settings import Settings

ENV = 'main() { env -0 >> "$LLM_OUTPUT"; }'


async def surroundings(bench: Bench, **changes: object) -> dict[str, str]:
    """The environment as a tool finds it."""
    file = bench.write("tools.sh", ENV)
    said = await bench.call(bench.declare(file, name="look"), home=bench.at_home(**changes))
    return dict(line.split("=", 1) for line in said["output"].split("\0") if line)


async def test_a_global_tool_gets_the_promised_variables(bench: Bench) -> None:
    found = await surroundings(bench)
    assert found["LLM_ROOT_DIR"] == str(bench.home.config_dir)
    assert found["LLM_TOOL_NAME"] == "look"
    assert found["LLM_TOOL_CACHE_DIR"] == str(bench.home.cache / "tools" / "look")
    assert Path(found["LLM_TOOL_CACHE_DIR"]).is_dir()
    assert found["LLM_PROMPT_UTILS_FILE"] == str(PROMPT_UTILS)
    assert PROMPT_UTILS.is_file()
    assert found["PATH"].startswith(str(bench.home.config_dir / "functions" / "bin") + ":")
    assert "AUTO_CONFIRM" not in found
    assert not [
        name for name in found if name.startswith(("LLM_AGENT_", "CALLBOARD_CALL", "CALLBOARD_TTY", "_callboard"))
    ]


async def test_an_agents_tool_gets_the_agents_variables_too(bench: Bench) -> None:
    variables = {"project-dir": "a b", "x": ""}
    found = await surroundings(
        bench, agent="my-agent", agent_dir=bench.directory, own=True, values=variables, auto_confirm=True
    )
    here = str(bench.directory)
    assert found["LLM_ROOT_DIR"] == str(bench.home.config_dir)
    assert {name: value for name, value in found.items() if name.startswith("LLM_AGENT_")} == {
        "LLM_AGENT_NAME": "my-agent",
        "LLM_AGENT_FUNC": "main",
        "LLM_AGENT_ROOT_DIR": here,
        "LLM_AGENT_DATA_DIR": here,
        "LLM_AGENT_CACHE_DIR": str(bench.home.cache / "agents" / "my-agent"),
        "LLM_AGENT_RAW_JSON": "{}",
        "LLM_AGENT_VAR_PROJECT_DIR": "a b",
        "LLM_AGENT_VAR_X": "",
    }
    assert found["AUTO_CONFIRM"] == "1"
    assert found["LLM_TOOL_CACHE_DIR"] == str(bench.home.cache / "agents" / "my-agent" / "tools" / "look")
    assert Path(found["LLM_AGENT_CACHE_DIR"]).is_dir()


async def test_a_global_tool_of_an_agent_knows_both_directories(bench: Bench) -> None:
    config = bench.home.config_dir
    found = await surroundings(bench, agent="a", agent_dir=bench.directory)
    assert (found["LLM_ROOT_DIR"], found["LLM_AGENT_ROOT_DIR"]) == (str(config), str(bench.directory))
    assert found["LLM_TOOL_CACHE_DIR"] == str(bench.home.cache / "tools" / "look")


@pytest.mark.parametrize("size", [1, LONGEST_VARIABLE + 1])
async def test_a_bash_tool_finds_its_arguments_as_json_however_long_they_are(bench: Bench, size: int) -> None:
    file = bench.write("tools.sh", 'main() { jq -r .text <<< "$LLM_TOOL_RAW_JSON" >> "$LLM_OUTPUT"; }')
    said = await bench.call(bench.declare(file, names=["text"]), text="it's " + size * "\n")
    assert said == {"output": "it's " + size * "\n" + "\n"}


async def test_programs_find_the_arguments_as_json_too(bench: Bench) -> None:
    file = bench.write("tools.py", "import os\ndef run(text): return os.environ['LLM_AGENT_RAW_JSON']\n")
    home = bench.at_home(agent="a", agent_dir=bench.directory, own=True)
    assert await bench.call(bench.declare(file, "run", names=["text"]), home=home, text="ä") == {"text": "ä"}


async def test_an_agents_tool_reads_what_agents_share_in_the_configuration_directory(bench: Bench) -> None:
    tools = 'source "$LLM_ROOT_DIR/agents/.shared/utils.sh"\n# @cmd Shares.\nown() { shared >> "$LLM_OUTPUT"; }\n'
    for base in ("config", "checkout"):
        bench.write(f"{base}/agents/a/tools.sh", tools)
        bench.write(f"{base}/agents/.shared/utils.sh", f"shared() {{ echo {base}; }}\n")
    registry = ToolRegistry(bench.home.config_dir, Settings(), bench.home.environ)
    for base in ("config", "checkout"):
        agent = bench.directory / base / "agents" / "a"
        home = registry.home(directory=agent, agent="a", values={}, options=ToolOptions())
        (tool,) = registry.of_agent(agent, home).tools.values()
        assert await bench.play(tool) == {"output": f"{base}\n"}


def test_only_an_agent_beside_shared_files_brings_another_root(tmp_path: Path) -> None:
    config = tmp_path / "config"
    agent = tmp_path / "agents" / "a"
    assert root_dir(config, None) == root_dir(config, agent) == root_dir(config, config / "agents" / "a") == config
    (tmp_path / "agents" / ".shared").mkdir(parents=True)
    assert root_dir(config, agent) == tmp_path
    assert root_dir(config, tmp_path / "a") == config


def test_what_an_outer_callboard_left_is_not_inherited(bench_less: Bench) -> None:
    outer = {"LLM_AGENT_NAME": "outer", "LLM_AGENT_VAR_X": "1", "CALLBOARD_ASK_FD": "5", "OTHER": "kept"}
    declaration = bench_less.declare(Path("tools.sh"))
    found = environment(bench_less.at_home(environ=outer), declaration, output=Path("/out"))
    assert found["OTHER"] == "kept"
    assert not {"LLM_AGENT_NAME", "LLM_AGENT_VAR_X", "CALLBOARD_ASK_FD"} & set(found)


def test_a_name_is_one_part_of_a_path() -> None:
    assert file_name("a/../b c") == "a_.._b_c"
    assert file_name("..") == "_"
    assert file_name("fs_cat") == "fs_cat"


@pytest.fixture
def bench_less(tmp_path: Path) -> Bench:
    """A bench that calls nothing."""
    return Bench(None, tmp_path)


# --- .env ---------------------------------------------------------------------------------------------------------


def test_the_nearest_env_file_wins_and_the_environment_over_all(tmp_path: Path) -> None:
    agent, config = tmp_path / "agent", tmp_path / "config"
    (config / "functions").mkdir(parents=True)
    agent.mkdir()
    (agent / ".env").write_text("A=agent\nSET=agent\n")
    (config / ".env").write_text("A=config\nB=config\n")
    (config / "functions" / ".env").write_text("A=functions\nB=functions\nC=functions\n")
    found = tool_environ({"SET": "ours"}, agent_dir=agent, config_dir=config)
    assert found == {"SET": "ours", "A": "agent", "B": "config", "C": "functions"}
    assert tool_environ({}, agent_dir=None, config_dir=config)["A"] == "config"
    assert tool_environ({}, agent_dir=None, config_dir=tmp_path / "none") == {}


def test_the_users_file_wins_over_no_nearer_one_when_the_program_has_loaded_it(
    tmp_path: Path,
) -> None:
    agent, config = tmp_path / "agent", tmp_path / "config"
    for home in (agent, config):
        home.mkdir()
        (home / ".env").write_text(f"A={home.name}\nB={home.name}\n")
    environ = {"B": "ours"}
    load_env_file(config, environ)
    found = tool_environ(environ, agent_dir=agent, config_dir=config)
    assert found == {"A": "agent", "B": "ours"}


RISKY = [
    "AUTO_CONFIRM",
    "BASH_ENV",
    "ENV",
    "IFS",
    "PATH",
    "LD_PRELOAD",
    "DYLD_INSERT_LIBRARIES",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "NODE_OPTIONS",
    "BASH_FUNC_ls",
    "GIT_SSH_COMMAND",
]


def test_an_agents_env_file_makes_no_program_run_anything_and_says_yes_to_nothing(tmp_path: Path) -> None:
    agent, config = tmp_path / "agent", tmp_path / "config"
    for home in (agent, config):
        home.mkdir()
        (home / ".env").write_text("".join(f"{name}={home.name}\n" for name in [*RISKY, "ENVIRONMENT"]))
    found = tool_environ({}, agent_dir=agent, config_dir=config)
    assert found == {**dict.fromkeys(RISKY, "config"), "ENVIRONMENT": "agent"}
    assert tool_environ({}, agent_dir=agent, config_dir=tmp_path / "none") == {"ENVIRONMENT": "agent"}


async def test_the_successors_name_of_a_search_is_ours_unless_the_user_has_a_file_of_that_name(bench: Bench) -> None:
    registry = ToolRegistry(bench.home.config_dir, Settings(), bench.home.environ)
    assert registry.spelled_out(["web_search_coyote.sh"]) == ["web_search_loki"]
    assert registry.unknown(["web_search_coyote"]) == []
    bench.write("config/functions/tools/web_search_coyote.sh", "# @describe Searches.\nmain() { :; }\n")
    assert registry.spelled_out(["web_search_coyote.sh"]) == ["web_search_coyote"]


async def test_a_global_tool_does_not_see_the_env_file_of_the_agent_that_calls_it(bench: Bench) -> None:
    config, agent = bench.home.config_dir, bench.directory / "agent"
    look = 'echo "$LLM_AGENT_NAME $OF_AGENT $OF_USER" >> "$LLM_OUTPUT"'
    bench.write("config/functions/tools/peek.sh", f"# @describe Peeks.\nmain() {{ {look}; }}\n")
    bench.write("agent/tools.sh", f"# @cmd Peeks too.\nown() {{ {look}; }}\n")
    bench.write("config/.env", "OF_USER=user\n")
    bench.write("agent/.env", "OF_AGENT=agent\n")
    registry = ToolRegistry(config, Settings(), bench.home.environ)
    home = registry.home(directory=agent, agent="a", values={}, options=ToolOptions())
    tools = [*registry.named(["peek"], home, ToolOptions()), *registry.of_agent(agent, home).tools.values()]
    assert [await bench.play(tool) for tool in tools] == [{"output": "a  user\n"}, {"output": "a agent user\n"}]
