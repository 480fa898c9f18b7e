"""Values of agents' variables: who wins, and secrets that a default names."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from support.agent_runs import AgentRunner
from support.fake_models import FakeModels, Reply
from support.messages import has_message, says

from callboard.actors.work.variables import missing_variables, named_file_of, overridden, resolve_variables, session_of
from callboard.protocol.agent import Agent
from callboard.protocol.errors import ConfigError, UsageError
from callboard.protocol.graph import Variable

NAMED = Variable(name="username", description="Your user name", default="{{MY_USERNAME}}")
TELL = '# @cmd Tells it.\ntell() { echo "it is $LLM_AGENT_VAR_USERNAME" >> "$LLM_OUTPUT"; }\n'
DECLARED = "variables:\n  - name: username\n    description: Your user name\n    default: '{{MY_USERNAME}}'\n"


def test_a_default_that_names_a_secret_is_the_secret_for_tools_and_the_name_for_models() -> None:
    values = resolve_variables("a", [NAMED], {}, {"MY_USERNAME": "ada"})
    assert (values.real, values.shown) == ({"username": "ada"}, {"username": "{{MY_USERNAME}}"})


@pytest.mark.parametrize(
    ("default", "value"),
    [
        ("{{ MY_USERNAME }}", "ada"),
        ("<{{MY_USERNAME}}@{{HOST}}>", "<ada@here>"),
        ("${MY_USERNAME}", "${MY_USERNAME}"),
        ("{{not a name}}", "{{not a name}}"),
        ("{{}} {MY_USERNAME}", "{{}} {MY_USERNAME}"),
        ("{{NESTED}}", "{{MY_USERNAME}}"),
    ],
)
def test_only_names_in_two_braces_are_secrets_and_values_are_not_looked_through_again(default: str, value: str) -> None:
    environ = {"MY_USERNAME": "ada", "HOST": "here", "NESTED": "{{MY_USERNAME}}"}
    assert resolve_variables("a", [Variable(name="x", default=default)], {}, environ).real == {"x": value}


def test_a_secret_in_the_variables_of_the_environment_is_one_too() -> None:
    environ = {"MY_AGENT_VARIABLES": json.dumps({"username": "{{OTHER}}"}), "OTHER": "bob"}
    assert resolve_variables("my-agent", [NAMED], {}, environ).real == {"username": "bob"}


def test_what_a_caller_gives_is_taken_as_it_is() -> None:
    """A model or a stranger may have made it, who must not read the environment so."""
    environ = {"MY_USERNAME": "ada", "OPENAI_API_KEY": "sk"}
    for given in ("{{OPENAI_API_KEY}}", " {{MY_USERNAME}}", "eve"):
        values = resolve_variables("a", [NAMED], {"username": given}, environ)
        assert (values.real, values.shown) == ({"username": given}, {"username": given})


def test_the_default_given_back_is_the_default() -> None:
    """Clients show it in a form, and send it along with the rest."""
    assert resolve_variables("a", [NAMED], {"username": "{{MY_USERNAME}}"}, {"MY_USERNAME": "ada"}).real == {
        "username": "ada"
    }


@pytest.mark.parametrize("environ", [{}, {"MY_USERNAME": ""}])
def test_a_secret_that_is_not_there_is_named_with_what_to_do(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as error:
        resolve_variables("a", [NAMED], {}, environ)
    assert has_message(str(error.value), "work.variables.resolve_variables.4")
    assert error.value.exit_code == 3
    assert missing_variables("a", [NAMED], {}, environ) == [NAMED]
    assert resolve_variables("a", [NAMED], {"username": "ada"}, environ).real == {"username": "ada"}


def test_what_has_no_value_at_all_is_still_an_error_of_usage() -> None:
    with pytest.raises(UsageError, match="- other:") as error:
        resolve_variables("a", [NAMED, Variable(name="other")], {}, {})
    assert "{{MY_USERNAME}}" in str(error.value)


async def test_an_agents_tools_get_the_secret_and_its_model_does_not(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_USERNAME", "ada-the-secret")
    home = agent_runner.plain(f"instructions: 'for {{{{username}}}}'\n{DECLARED}", name="clerk")
    (home / "tools.sh").write_text(TELL)
    agent_runner.models.script(Reply(calls=[("tell", {})]), "done")
    await agent_runner.run("go", target="clerk")
    assert (
        "it is [redacted]" in agent_runner.models.requests[-1].results[0]
    )  # said by the tool, and hidden from the model
    assert agent_runner.models.requests[0].system.startswith("for {{MY_USERNAME}}")


async def test_scripts_of_a_graph_get_it_and_so_do_those_of_its_children(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_USERNAME", "ada")
    node = "a: {type: script, script: a.sh, state_updates: {who: '{{who}}'}, next: e}"
    kid = f"{DECLARED}start: a\nnodes:\n  {node}\n  e: {{type: end, output: '{{{{who}}}}'}}"
    agent_runner.agent(kid, "kid", a='echo "{\\"who\\": \\"$LLM_AGENT_VAR_USERNAME\\"}"')
    assert (await agent_runner.run(target="kid")).output == "ada"
    agent_runner.agent(
        "initial_state: {made: '{{MY_USERNAME}} and {{PATH}}'}\nstart: a\nnodes:\n"
        "  a: {type: agent, agent: kid, prompt: p, next: b}\n"
        "  b: {type: agent, agent: kid, prompt: p, inputs: {username: 'x {{made}}'}, state_updates: {y: '{{output}}'}, "
        "next: e}\n"
        "  e: {type: end, output: '{{y}}'}",
        "top",
    )
    assert (await agent_runner.run(target="top")).output == "x {{MY_USERNAME}} and {{PATH}}"


async def test_a_run_without_the_secret_does_not_begin_and_says_where_it_is_named(
    agent_runner: AgentRunner, fake_model: FakeModels
) -> None:
    home = agent_runner.plain(DECLARED, name="clerk")
    (home / "tools.sh").write_text(TELL)
    with pytest.raises(
        ConfigError,
        match=says("work.variables._Found.about.2", where="…config.yaml:5:14)", secret="MY_USERNAME"),
    ):
        await agent_runner.run("go", target="clerk")
    assert not fake_model.requests
    assert Path(home).is_dir()


def test_the_environment_says_instructions_session_and_file_of_an_agent() -> None:
    agent = Agent(name="my-agent", instructions="Be short.", agent_session="daily")
    assert session_of(agent, {"agent_session": "all"}, {}) == "daily"
    assert session_of(msgspec.structs.replace(agent, agent_session=None), {"agent_prelude": "all"}, {}) == "all"
    assert session_of(agent, {}, {"MY_AGENT_AGENT_SESSION": "weekly"}) == "weekly"
    said = {"MY_AGENT_INSTRUCTIONS": "Be long."}
    assert overridden(agent, said).instructions == "Be long."
    assert overridden(msgspec.structs.replace(agent, dynamic_instructions=True), said).instructions == "Be short."
    assert named_file_of("aws", {"AWS_CONFIG_FILE": "/home/me/.aws/config"}) is None
    assert named_file_of("aws", {"AWS_CONFIG_FILE": "mine.yaml"}) == "mine.yaml"


@pytest.mark.parametrize(
    "given", [{"a": "1", "b": "2"}, [{"a": "1", "b": "2"}], [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]]
)
def test_variables_of_the_environment_may_be_written_as_on_lokis_pages(given: object) -> None:
    declared = [Variable(name="a"), Variable(name="b")]
    assert resolve_variables("x", declared, {}, {"X_VARIABLES": json.dumps(given)}).real == {"a": "1", "b": "2"}
