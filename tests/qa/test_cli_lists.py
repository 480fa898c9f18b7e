"""Loki's command line: what tells and asks no model (sections 2 and 6.5 of the plan, 2 of the checklist)."""

from __future__ import annotations

from qa.home import House
from qa.pages import pages


def words(house: House, *arguments: str) -> list[str]:
    """The lines that a list prints, and it ends well."""
    ended = house.loki(*arguments)
    assert ended.code == 0, ended.shown
    return [line.strip() for line in ended.shown.splitlines() if line.strip()]


def test_p2_1_c2_6_info_tells_paths_model_and_settings(house: House) -> None:
    ended = house.loki("--info")
    assert ended.code == 0
    assert str(house.config) in ended.shown.replace("\n", "")
    assert "fake:model" in ended.shown
    assert "temperature" in ended.shown


def test_p2_2_c2_7_models_are_listed_by_their_ids(house: House) -> None:
    listed = words(house, "--list-models")
    assert {"fake:model", "fake:other"} <= {line.split()[0] for line in listed}


def test_p2_3_c2_8_roles_are_listed_without_hidden_files(house: House) -> None:
    listed = words(house, "--list-roles")
    assert {"pirate", "reader", "shell"} <= set(listed)
    assert not [line for line in listed if "hidden" in line]


def test_p2_4_c2_9_sessions_are_listed(house: House) -> None:
    assert house.loki("-s", "bridges", "hello").code == 0
    assert words(house, "--list-sessions") == ["bridges"]


def test_p2_5_c2_10_i1_agents_are_listed_without_shared_files(house: House) -> None:
    listed = words(house, "--list-agents")
    assert {"clerk", "librarian", "coder"} <= set(listed)
    assert not [line for line in listed if "shared" in line]


def test_p2_6_knowledge_bases_are_listed(house: House) -> None:
    (house.config / "knowledge").mkdir(exist_ok=True)
    (house.config / "knowledge" / "fruit.yaml").write_text(f"documents: [{house.config.parent / 'fruit'}]\n")
    assert words(house, "--list-rags") == ["fruit"]


def test_p2_7_macros_are_listed(house: House) -> None:
    assert {"greet", "generate-commit-message"} <= set(words(house, "--list-macros"))


def test_p2_8_models_and_prices_are_fetched_and_it_is_said_what_came_of_it(house: House) -> None:
    with pages({"/models.yaml": MODELS}) as url:
        house.settings(sync_models_url=f"{url}/models.yaml")
        fetched = house.loki("--sync-models")
    assert fetched.code == 0, fetched.shown
    assert f"from {url}/models.yaml" in fetched.shown.replace("\n", " ")
    kept = house.home / ".local" / "share" / "callboard" / "prices.json"
    assert "a-new-model" in kept.read_text()
    failed = house.loki("--sync-models")  # the server is gone
    assert failed.code == 6
    assert f"{url}/models.yaml can't be fetched" in failed.shown.replace("\n", " ")
    assert "a-new-model" in kept.read_text()


MODELS = """
- provider: openai
  models:
  - name: a-new-model
    max_input_tokens: 128000
    input_price: 2.5
    output_price: 10
"""


def test_p6_5_tools_need_not_be_built(house: House) -> None:
    assert "nothing to build" in " ".join(words(house, "-a", "clerk", "--build-tools"))
