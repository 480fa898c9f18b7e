"""Loki's command line: what tells and asks no model (sections 2 and 6.5 of the plan, 2 of the checklist)."""

from __future__ import annotations

from qa.home import QaHome
from qa.pages import pages


def words(qa_home: QaHome, *arguments: str) -> list[str]:
    """The lines that a list prints, and it ends well."""
    ended = qa_home.loki(*arguments)
    assert ended.code == 0, ended.shown
    return [line.strip() for line in ended.shown.splitlines() if line.strip()]


def test_p2_1_c2_6_info_tells_paths_model_and_settings(qa_home: QaHome) -> None:
    ended = qa_home.loki("--info")
    assert ended.code == 0
    assert str(qa_home.config) in ended.shown.replace("\n", "")
    assert "fake:model" in ended.shown
    assert "temperature" in ended.shown


def test_p2_2_c2_7_models_are_listed_by_their_ids(qa_home: QaHome) -> None:
    listed = words(qa_home, "--list-models")
    assert {"fake:model", "fake:other"} <= {line.split()[0] for line in listed}


def test_p2_3_c2_8_roles_are_listed_without_hidden_files(qa_home: QaHome) -> None:
    listed = words(qa_home, "--list-roles")
    assert {"pirate", "reader", "shell"} <= set(listed)
    assert not [line for line in listed if "hidden" in line]


def test_p2_4_c2_9_sessions_are_listed(qa_home: QaHome) -> None:
    assert qa_home.loki("-s", "bridges", "hello").code == 0
    assert words(qa_home, "--list-sessions") == ["bridges"]


def test_p2_5_c2_10_i1_agents_are_listed_without_shared_files(qa_home: QaHome) -> None:
    listed = words(qa_home, "--list-agents")
    assert {"clerk", "librarian", "coder"} <= set(listed)
    assert not [line for line in listed if "shared" in line]


def test_p2_6_knowledge_bases_are_listed(qa_home: QaHome) -> None:
    (qa_home.config / "knowledge").mkdir(exist_ok=True)
    (qa_home.config / "knowledge" / "fruit.yaml").write_text(f"documents: [{qa_home.config.parent / 'fruit'}]\n")
    assert words(qa_home, "--list-rags") == ["fruit"]


def test_p2_7_macros_are_listed(qa_home: QaHome) -> None:
    assert {"greet", "generate-commit-message"} <= set(words(qa_home, "--list-macros"))


def test_p2_8_models_and_prices_are_fetched_and_it_is_said_what_came_of_it(qa_home: QaHome) -> None:
    with pages({"/models.yaml": MODELS}) as url:
        qa_home.settings(sync_models_url=f"{url}/models.yaml")
        fetched = qa_home.loki("--sync-models")
    assert fetched.code == 0, fetched.shown
    assert f"from {url}/models.yaml" in fetched.shown.replace("\n", " ")
    kept = qa_home.home / ".local" / "share" / "callboard" / "prices.json"
    assert "a-new-model" in kept.read_text()
    failed = qa_home.loki("--sync-models")  # the server is gone
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


def test_p6_5_tools_need_not_be_built(qa_home: QaHome) -> None:
    assert "nothing to build" in " ".join(words(qa_home, "-a", "clerk", "--build-tools"))
