"""What Prometheus is told, and whether there may be more work."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
import trio
from access_house import gate_for
from fake_models import Reply
from prometheus_client.parser import text_string_to_metric_families
from stage import Stage

from callboard.actors.server.access.places import Places
from callboard.actors.server.health import Health
from callboard.actors.server.metrics import MOST_NAMES, Metrics
from callboard.actors.server.notify import notify
from callboard.protocol.questions import Question


def values(metrics: Metrics) -> dict[str, float]:
    """Every sample by its name and labels; that it parses is part of the promise."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    return {
        sample.name + "".join(f" {name}={value}" for name, value in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


async def test_case_110_a_run_is_counted_and_the_text_parses(stage: Stage) -> None:
    stage.agent("start: a\nnodes:\n  a: {type: llm, prompt: hi, next: z}\n  z: {type: end}")
    stage.models.script("hello")
    metrics = Metrics(lambda: 3)
    with metrics.listening(stage.root):
        outcome = await stage.run("x")
        found = values(metrics)
    assert outcome.status == "done"
    assert found["runs_total status=done"] == 1
    assert found["runs_active"] == 0
    assert found["llm_inflight"] == 0
    model = next(name for name in found if name.startswith("gen_ai_client_operation_duration_seconds_count"))
    assert found[model] == 1
    assert found["sessions_active_total"] == 3
    assert found["questions_open"] == 0
    assert found["actors state=running"] >= 1
    assert stage.events[0].run not in metrics.exposition().decode()


async def test_names_of_the_plan_and_of_the_conventions_are_all_there(stage: Stage) -> None:
    metrics = Metrics(lambda: 0)
    _ = stage.root.mcp.pool
    metrics.auth_failed("key")
    metrics.rate_limited("requests")
    metrics.request_began()
    metrics.request_ended("GET", "/v1/runs", 200, 0.1)
    with metrics.listening(stage.root):
        text = metrics.exposition().decode()
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert names >= {
        *("http_requests_total", "http_request_duration_seconds", "http_requests_in_flight"),
        *("sessions_active_total", "sessions_created_total", "mcp_pool_size", "mcp_acquire_latency_seconds"),
        *("mcp_spawns_total", "mcp_idle_evictions_total", "auth_failures_total", "rate_limit_rejections_total"),
        *("actors", "mailbox_depth", "questions_open", "question_wait_seconds", "mcp_processes", "llm_inflight"),
        *("scheduler_lag_seconds", "restarts_total", "gen_ai_client_token_usage"),
    }
    assert "process_resident_memory_bytes" in names


async def test_a_model_that_is_waited_for_is_in_flight_until_its_run_is_cancelled(stage: Stage) -> None:
    stage.agent("start: a\nnodes:\n  a: {type: llm, prompt: hi, next: z}\n  z: {type: end}")
    stage.models.script(Reply(hold=trio.Event()))
    metrics = Metrics()
    with metrics.listening(stage.root):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.run, "x")
            with trio.fail_after(10):
                while not stage.models.requests:
                    await trio.sleep(0.005)
            found = values(metrics)
            nursery.cancel_scope.cancel()
        assert (found["llm_inflight"], found["runs_active"]) == (1, 1)
        found = values(metrics)
    assert (found["llm_inflight"], found["runs_active"]) == (0, 0)
    assert found["runs_total status=cancelled"] == 1


async def test_questions_are_counted_while_open_and_their_waits_when_closed(stage: Stage) -> None:
    metrics = Metrics()
    stage.root.questions.patient = True
    with metrics.listening(stage.root):

        async def ask(me: object) -> None:
            await me.ask_person(Question(id="", actor="", text="well?"))

        ref = stage.root.kernel.spawn(ask)
        with trio.fail_after(10):
            while not stage.root.questions.open:
                await trio.sleep(0.001)
        assert values(metrics)["questions_open"] == 1
        (question,) = stage.root.questions.open
        stage.root.questions.answer(question.id, "yes")
        await ref.wait()
        found = values(metrics)
    assert found["questions_open"] == 0
    assert found["question_wait_seconds_count end=answered"] == 1


def test_a_label_has_only_so_many_values_whatever_files_say() -> None:
    metrics = Metrics()
    for number in range(MOST_NAMES + 50):
        metrics._llm_retries.labels(metrics._name("model", f"model-{number}")).inc()
    found = {name: value for name, value in values(metrics).items() if name.startswith("llm_retries_total")}
    assert len(found) == MOST_NAMES + 1
    assert found["llm_retries_total model=other"] == 50


async def test_nothing_is_counted_any_more_when_nobody_listens(stage: Stage) -> None:
    metrics = Metrics()
    heard = stage.root.bus.kernel.heard
    with metrics.listening(stage.root):
        pass
    assert stage.root.bus.kernel.heard == heard
    assert "actors" not in values(metrics)


async def test_how_late_the_loop_is_is_measured(stage: Stage) -> None:
    gate = gate_for()
    gate.metrics = metrics = Metrics()

    async def body(me: object) -> None:
        await gate.start(me)
        await trio.sleep_forever()

    ref = stage.root.kernel.spawn(body)
    with trio.fail_after(10):
        while not values(metrics)["scheduler_lag_seconds_count"]:
            await trio.sleep(0.01)
    ref.cancel()
    await ref.wait()


# --- health --------------------------------------------------------------------------------------------------


async def test_case_110_ready_is_503_when_the_store_can_t_be_written_to(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert await Health(stage.root, Places(1, 10), [tmp_path / "sessions"]).ready() == (200, {"status": "ok"})
    assert list((tmp_path / "sessions").iterdir()) == [], "the probe leaves nothing"
    status, body = await Health(stage.root, Places(1, 10), [tmp_path / "file" / "sessions"]).ready()
    assert status == 503
    assert "sessions can't be written to" in body["problems"][0]
    assert str(tmp_path) not in str(body), "strangers are not told where things are"


async def test_case_110_ready_is_503_when_less_than_a_tenth_of_the_places_is_free(
    stage: Stage, nursery: trio.Nursery
) -> None:
    places = Places(20, 20)
    health = Health(stage.root, places, [])
    places.taken = 18
    assert (await health.ready())[0] == 200
    places.taken = 19
    assert await health.ready() == (503, {"status": "unavailable", "problems": ["19 of 20 requests are under way"]})
    assert health.live() == (200, {"status": "ok"})


async def test_case_110_live_is_200_until_the_server_ends(stage: Stage) -> None:
    health = Health(stage.root, Places(1, 10), [])
    assert health.live()[0] == 200
    health.draining = True
    assert health.live()[0] == 503
    assert (await health.ready())[0] == 503


async def test_the_store_is_looked_at_once_a_second_however_often_one_asks(stage: Stage, tmp_path: Path) -> None:
    health = Health(stage.root, Places(1, 10), [tmp_path])
    await health.ready()
    looked = health._looked
    for _ in range(50):
        await health.ready()
    assert health._looked in (looked, pytest.approx(trio.current_time(), abs=5))


# --- systemd -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_over_its_socket(tmp_path: Path, abstract: bool) -> None:
    path = str(tmp_path / "notify")
    address = f"@{path}" if abstract else path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.settimeout(10)
        there.bind("\0" + path if abstract else path)
        assert notify("READY=1", {"NOTIFY_SOCKET": address})
        assert there.recv(100) == b"READY=1"


def test_without_systemd_nothing_happens(tmp_path: Path) -> None:
    assert not notify("READY=1", {})
    assert not notify("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    assert not notify("READY=1", {"NOTIFY_SOCKET": "tcp:1"})
