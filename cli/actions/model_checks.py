"""Checks of models, for `callboard models check` and `callboard doctor --models`.

A check without `--live` sends no request: it examines the entry, its credentials, price and limits.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ...actors.io.directories import config_dir as configured
from ...actors.io.vault.lookups import ForChecks
from ...actors.io.vault.vault import Vault
from ...actors.runs.model_checks import AT_ONCE, Checked, all_models, ask, check, exit_code
from ...actors.work.models.catalog import ModelCatalog
from ...actors.work.models.model_listing import usd
from ...protocol.chat import models_of
from ..frame import act, choose_display
from ..render.text import json_object, one_line, redrawable, safe

if TYPE_CHECKING:
    from ...actors.runs.root import Root
    from ...protocol.settings import Settings
    from ...supervisors import Actor


_SAID = 40
"""Characters shown of a reply."""


def check_models(names: Sequence[str], settings: Settings, config_dir: str | None, *, live: bool, as_json: bool) -> int:
    """Check these models, or all of config.yaml; return the exit code of the first unusable one.

    Raises:
        ConfigError: there is no such client or model.
    """
    found = checked_models(names, settings, configured(config_dir, os.environ)[0])
    if live:
        found = _asked(found, config_dir, shown=not as_json)
    elif not as_json:
        sys.stdout.write("".join(f"{as_check_text(each)}\n" for each in found))
    if as_json:
        sys.stdout.write(json_object(models=msgspec.to_builtins(found)))
    return exit_code(found)


def checked_models(names: Sequence[str], settings: Settings, home: Path) -> list[Checked]:
    """Check models without a request: entry, credentials, price, and limits."""
    vault = Vault(settings, home, os.environ)
    catalog = ModelCatalog(settings, os.environ, vault=ForChecks(vault))
    meant = (catalog.full(each) for name in names for each in models_of(name))
    wanted = list(dict.fromkeys(meant)) or all_models(settings, catalog)
    return [check(name, settings, catalog, os.environ) for name in wanted]


def _asked(found: list[Checked], config_dir: str | None, *, shown: bool) -> list[Checked]:
    """Send a request to each model and print each result as soon as it is known."""
    progress = choose_display(sys.stderr, quiet=not redrawable(sys.stderr), verbose=False)
    unwritten: list[OSError] = []

    async def ask_all(me: Actor, root: Root) -> list[Checked]:
        known: dict[str, Checked] = {}
        limiter = trio.CapacityLimiter(AT_ONCE)

        async def one(each: Checked) -> None:
            known[each.model] = await ask(me, each, root.gateway, root.knowledge, limiter)
            if shown and not unwritten:
                try:
                    with progress.aside():
                        sys.stdout.write(f"{as_check_text(known[each.model])}\n")
                        sys.stdout.flush()
                except OSError as error:
                    # Raised after the nursery: in it, a closed pipe would cancel requests that are paid for, and `act`
                    # would report a crash.
                    unwritten.append(error)

        async with trio.open_nursery() as nursery:
            for each in found:
                nursery.start_soon(one, each)
        return [known[each.model] for each in found]

    asked = act(ask_all, config_dir=config_dir, progress=progress)
    if unwritten:
        raise unwritten[0]
    return asked


def as_check_text(checked: Checked) -> str:
    """Return the result of a check in one or more lines."""
    if checked.failed is not None:
        return safe(f"FAILED {checked.model}\n       {checked.failed.message}")
    facts = [f"key: {checked.key}" if checked.key else "no key", _price_text(checked)]
    if checked.window is not None:
        facts.append(f"window {checked.window:,} ({checked.window_from})")
    elif checked.kind == "chat":
        facts.append("window not known (`max_input_tokens`)")
    if checked.lacks:
        facts.append(f"without {', '.join(checked.lacks)}")
    lines = [f"ok     {checked.model}", f"       {'; '.join(facts)}"]
    if checked.answer is not None:
        lines.append(f"       {_answer_text(checked)}")
    return safe("\n".join(lines))


def _price_text(checked: Checked) -> str:
    if not checked.priced:
        return "unpriced"
    if not checked.input_price and not checked.output_price:
        return "free"
    out = "" if checked.output_price is None else f", {usd(checked.output_price)} out"
    return f"{usd(checked.input_price or 0.0)} in{out}"


def _answer_text(checked: Checked) -> str:
    answer = checked.answer
    assert answer is not None
    took = f"in {answer.seconds:.1f} s"
    if answer.first is not None:
        took += f" (the first of it after {answer.first:.1f} s)"
    if checked.kind != "chat":
        return f"answered {took}: {answer.text}"
    said = f"`{one_line(answer.text, _SAID)}`" if answer.text.strip() else "no text"
    cost = "" if answer.cost is None else f", {usd(answer.cost) if answer.cost >= 1e-6 else 'less than $0.000001'}"
    return f"answered {said} {took}; {answer.input_tokens} + {answer.output_tokens} tokens{cost}"
