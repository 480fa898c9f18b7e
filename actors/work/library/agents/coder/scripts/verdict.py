"""Judgement of a change by its tests: `passed`, `failed` or `unverified`, with the reasons in words.

Passed means: tests ran, all of them pass, and each test that ran before the change ran again. Tests that are gone or
skipped now are a failure. What could not be tested, and what passes only by tests that the change itself rewrote, is
neither: a person has to look.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from results import FAILED, PASSED, SKIPPED, ran

if TYPE_CHECKING:
    Report = dict[str, Any]

_PARAMETERS = re.compile(r"\[.*\]$", re.DOTALL)

SHOWN = 10
"""Names in a list."""


def judge(
    baseline: dict[str, Any] | None,
    reports: list[Report],
    weakened: list[str],
    build: str,
    *,
    may_change: bool,
    none: str,
) -> tuple[str, str]:
    """The verdict and its reasons.

    Args:
        baseline: what `measure` has kept; None if it did not run.
        reports: of the tests as they are now.
        weakened: test files that have lost lines.
        build: the status of the build.
        may_change: the user lets existing tests be changed, removed and skipped.
        none: why there are no reports, if there are none.
    """
    before = {_key(report): report for report in (baseline or {}).get("suites", ())}
    after = {_key(report): report for report in reports}
    failed: list[str] = []
    unverified: list[str] = []
    passed: list[str] = []
    for key, old in before.items():
        if key not in after and ran(old["results"]) and not may_change:
            failed.append(f"{_label(old)}: the {ran(old['results'])} tests that ran before the change are gone")
        elif key in after and old["definition"] != after[key]["definition"] and not may_change:
            unverified.append(f"not proven: what `{old['command']}` runs was changed")
    for key, report in after.items():
        _judge_one(before.get(key), report, may_change, failed, unverified, passed)
    if not reports and not failed:
        unverified.append(f"not tested: {none}")
    if baseline is None:
        unverified.append("not compared: it is not known which tests there were before the change")
    if weakened and not may_change:
        unverified.append(f"not proven: lines of existing tests were changed or removed in {_list(weakened)}")
    if build.startswith("could not run"):
        unverified.append(f"not built: the build {build}")
    if failed:
        return "failed", "failed: " + "; ".join(failed)
    if unverified:
        return "unverified", "; ".join([*unverified, *(f"passed: {each}" for each in passed)])
    return "passed", "passed: " + "; ".join(passed)


def _judge_one(
    old: Report | None,
    report: Report,
    may_change: bool,
    failed: list[str],
    unverified: list[str],
    passed: list[str],
) -> None:
    label, state, now = _label(report), report["state"], report["results"]
    ran_before = old is not None and ran(old["results"]) > 0
    lost = [] if may_change or old is None else _lost(old["results"], now)
    if state in ("unable", "nothing"):
        what = "could not run" if state == "unable" else "not tested"
        if ran_before and not may_change:
            failed.append(
                f"{label}: {ran(old['results'])} tests ran before the change, and none runs now: {report['why']}"
            )
        else:
            unverified.append(f"{what}: {report['why']}")
    elif state == "failed":
        if not ran(now) and old is not None and old["state"] == "failed" and not ran_before:
            unverified.append(f"could not run: {report['why']}, as before the change")
        else:
            failed.append(f"{label}: {report['why']}{_failed_before(old, now)}")
    else:
        passed.append(f"{label}: {_passed(old, now)}")
    failed += [f"{label}: {each}" for each in lost]


def _lost(old: Report | None, new: Report | None) -> list[str]:
    """What is missing of the tests that ran before."""
    if old is None or not ran(old) or not ran(new):
        return []
    assert new is not None
    if old["names"] is not None and new["names"] is None:
        return ["the tests that ran before the change are not listed any more"]
    if old["names"] is None or new["names"] is None:
        fewer = ran(old) - ran(new)
        return [f"{fewer} tests fewer run than before the change"] if fewer > 0 else []
    ran_then = [name for name, outcome in old["names"].items() if outcome != SKIPPED]
    # Parameters of a test may be named by the time or an address: of those only the number has to stay.
    then, now = (Counter(_PARAMETERS.sub("", name) for name in names) for names in (ran_then, new["names"]))
    gone = [name for name, count in then.items() if now[name] < count]
    skipped = [name for name in ran_then if new["names"].get(name) == SKIPPED]
    found = [f"tests that ran before the change are gone: {_list(gone)}"] if gone else []
    return [*found, f"tests that ran before the change are skipped: {_list(skipped)}"] if skipped else found


def _passed(old: Report | None, now: Report | None) -> str:
    if now is None:
        return "the command ended with exit 0; it does not say how many tests it ran"
    count = f"{now[PASSED]} passed" + (f", {now[SKIPPED]} skipped" if now[SKIPPED] else "")
    names, then = now["names"], (old or {}).get("results")
    if then is None or names is None or then["names"] is None:
        return count
    fixed = [name for name, outcome in names.items() if outcome == PASSED and then["names"].get(name) == FAILED]
    new = [name for name, outcome in names.items() if outcome == PASSED and name not in then["names"]]
    if fixed or new:
        parts = [f"{len(fixed)} failed before the change"] * bool(fixed) + [f"{len(new)} new"] * bool(new)
        return f"{count} ({', '.join(parts)})"
    return f"{count}, as before the change: none of them shows it"


def _failed_before(old: Report | None, now: Report | None) -> str:
    then = (old or {}).get("results")
    if now is None or then is None or now["names"] is None or then["names"] is None:
        return ""
    failing = [name for name, outcome in now["names"].items() if outcome == FAILED]
    as_before = sum(then["names"].get(name) == FAILED for name in failing)
    return f" ({as_before} of them failed before the change)" if as_before else ""


def _key(report: Report) -> tuple[str, str]:
    return report["where"], report["name"]


def _label(report: Report) -> str:
    return report["name"] if report["where"] == "." else f"{report['name']} in {report['where']}"


def _list(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
