"""`callboard demo` runs on any model, or says which one can be had, and ends with what to try next."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Request
from support.messages import has_message
from support.starter import CALLBOARD

from callboard.actors.work.models import weights
from callboard.cli.demo import AGENT, MESSAGE


async def demo(environ: dict[str, str], *arguments: str, program: tuple[str, ...] = CALLBOARD) -> tuple[int, str, str]:
    argv = [*program, "demo", *arguments]
    run = partial(trio.run_process, capture_stdout=True, capture_stderr=True, check=False)
    ended = await run(argv, env=environ, stdin=None)
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


def bare(home: Path) -> dict[str, str]:
    """An environment with an empty HOME, and no key."""
    return {"PATH": os.environ["PATH"], "HOME": str(home)}


def helpdesk(words: str, mood: str) -> Callable[[Request], str]:
    """A model that sorts by the schema it is given, and drafts with these words."""

    def reply(request: Request) -> str:
        if "calm, worried or angry" in request.prompt:
            return json.dumps({"mood": mood})
        return json.dumps({"topic": "money"}) if "software, delivery or money" in request.prompt else words

    return reply


@pytest.mark.parametrize("words", ["Thank you!", 'Whatever comes to\nmy mind: "quotes", {braces} and 漢字.'])
async def test_it_takes_whatever_a_model_says(fake_model: FakeModels, tmp_path: Path, words: str) -> None:
    fake_model.answer_with(helpdesk(words, "angry"))
    home = fake_model.config_dir(tmp_path / "home/.config/callboard")
    assert home.is_dir()
    code, out, err = await demo(bare(tmp_path / "home"))
    assert (code, out) == (0, f"Sent to queue fast: {words}\n"), err
    shown = err.splitlines()
    assert shown[0] == f'callboard run {AGENT} "{MESSAGE}"'
    assert shown[-4] == "Try next:"
    assert shown[-1].split()[1:] == ["doctor", "which", "models,", "keys", "and", "extras", "are", "found", "here"]


async def test_quietly_it_says_nothing_but_the_result(fake_model: FakeModels, tmp_path: Path) -> None:
    fake_model.answer_with(helpdesk("fine", "calm"))
    config = fake_model.config_dir(tmp_path / "config")
    code, out, err = await demo(bare(tmp_path), "-q", "--config-dir", str(config), "Hello there")
    assert (code, out, err) == (0, "Sent to queue normal: fine\n", "")


async def test_without_model_key_and_engine_it_says_what_to_install(tmp_path: Path) -> None:
    without = "import sys; sys.modules['xllamacpp'] = None; from callboard.cli.main import main; main()"
    code, out, err = await demo(bare(tmp_path), program=(sys.executable, "-c", without))
    assert (code, out) == (3, "")
    assert has_message(err, "work.models.engines.require_engine")
    assert "OPENAI_API_KEY" in err


@pytest.mark.full
@pytest.mark.skipif(
    find_spec("xllamacpp") is None or not weights.KNOWN["smollm2"].are_in(weights.directory(os.environ)),
    reason="the local model is not here",
)
async def test_with_nothing_but_the_local_model_it_runs_on_that(tmp_path: Path) -> None:
    cache = weights.directory(os.environ).parents[1]
    code, out, _err = await demo({**bare(tmp_path), "XDG_CACHE_HOME": str(cache)}, "-m", "local:smollm2")
    assert code == 0
    assert out.startswith("Sent to queue ")
