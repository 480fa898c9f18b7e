"""How far daily limits are used, as somebody sees it who is not the server."""

from __future__ import annotations

from pathlib import Path

from callboard.actors.work.spending.accounts import Amount
from callboard.actors.work.spending.days import ALL, DailyRules, Days, readings
from callboard.actors.work.spending.ledger import DAY, LedgerFile, today_of
from callboard.protocol.settings.api import ApiKey, ApiLimits, ApiSettings, Auth, DailyLimits
from callboard.supervisors import Root

FIVE, ONE = DailyLimits(max_cost=5.0), DailyLimits(max_tokens=1000)
KEYS = (
    ApiKey(subject="bob", key_hash="x", scopes=()),
    ApiKey(subject="alice", key_hash="x", scopes=(), daily=FIVE),
)
SETTINGS = ApiSettings(auth=Auth(keys=KEYS), limits=ApiLimits(per_subject_daily=ONE, daily=DailyLimits(max_cost=9.0)))
NOON = 20_000 * DAY + DAY / 2


def test_the_limit_of_a_key_goes_before_that_of_each_subject() -> None:
    rules = DailyRules(SETTINGS)
    assert rules.of("alice") == (FIVE, "api.auth.keys[1].daily")
    assert rules.of("bob") == rules.of("stranger") == (ONE, "api.limits.per_subject_daily")
    assert rules.all == (DailyLimits(max_cost=9.0), "api.limits.daily")


def test_without_a_file_nothing_of_the_limits_is_used(tmp_path: Path) -> None:
    today = today_of(20_000, NOON)
    found = readings(tmp_path / "usage.db", SETTINGS, today)
    assert [(each.subject, each.spent, each.held) for each in found] == [
        (subject, Amount(), Amount()) for subject in (ALL, "alice", "bob")
    ]
    assert readings(tmp_path / "usage.db", ApiSettings(), today) == []


async def test_it_is_what_the_server_says_with_requests_under_way_and_those_of_strangers(tmp_path: Path) -> None:
    path, today = tmp_path / "usage.db", today_of(20_000, NOON)
    async with Root() as root:
        days = Days(root, LedgerFile(path), SETTINGS, now=lambda: NOON)
        for subject in ("alice", "stranger"):
            account = days.account(subject)
            assert account is not None
            hold = await account.admit(account, Amount(500, 0.5), lambda: None, turn=True)
            hold.spend(Amount(100, 0.25))
            await account.admit(account, Amount(300, 0.5), lambda: None, turn=True)
        await days.poll()
        found = readings(path, SETTINGS, today)
        assert {each.subject: (each.spent, each.held.tokens) for each in found} == {
            ALL: (Amount(200, 0.5), 600),
            "alice": (Amount(100, 0.25), 300),
            "bob": (Amount(), 0),
            "stranger": (Amount(100, 0.25), 300),
        }
        assert found == days.readings()
        await days.aclose()
    tomorrow = today_of(20_001, NOON + DAY)
    assert {each.subject: each.spent for each in readings(path, SETTINGS, tomorrow)} == {
        subject: Amount() for subject in (ALL, "alice", "bob")
    }
