"""A token is kept good: refreshed once for all, over restarts, processes, failures and clocks that lie."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
import trio
import trio.testing
from support.auth_server import LocalAuthServer
from support.messages import says
from support.starter import forked

from callboard.actors.io.oauth.endpoint import AuthHttp, TokenEndpoint
from callboard.actors.io.oauth.token import JUST_NOW, LOOK, PAUSE, Keepers, OAuthToken, TokenFile, TokenKeeper
from callboard.protocol.errors import ConfigError, OAuthRefused, SignInNeeded, UpstreamError
from callboard.supervisors import Root

from .conftest import Calendar, signed_in


def keeper_of(root: Root, endpoint: TokenEndpoint, file: TokenFile) -> TokenKeeper:
    return Keepers(root).keeper(endpoint, file, who="client 'lab'", remedy="callboard auth login lab")


@pytest.fixture
def keeper(root: Root, endpoint: TokenEndpoint, file: TokenFile) -> TokenKeeper:
    return keeper_of(root, endpoint, file)


@pytest.fixture
async def token(server: LocalAuthServer, endpoint: TokenEndpoint, file: TokenFile) -> OAuthToken:
    """Of a person who has signed in; it is in the file."""
    return await signed_in(server, endpoint, file)


async def test_a_fresh_token_is_used_without_asking_anybody(
    server: LocalAuthServer, token: OAuthToken, keeper: TokenKeeper
) -> None:
    assert await keeper.token() == token
    with trio.testing.assert_no_checkpoints():
        assert await keeper.token() == token
    assert server.refreshes == 0


async def test_fifty_callers_who_find_it_old_make_one_refresh(
    root: Root,
    server: LocalAuthServer,
    endpoint: TokenEndpoint,
    file: TokenFile,
    clock: trio.testing.MockClock,
    calendar: Calendar,
) -> None:
    old = await signed_in(server, endpoint, file)
    keeper = keeper_of(root, endpoint, file)
    await keeper.token()
    clock.jump(3600.0)
    server.hold, got = trio.Event(), []

    async def ask() -> None:
        got.append(await keeper.token())

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(ask)
        while not server.under_way:
            await trio.sleep(0.01)
        server.hold.set()
    assert server.refreshes == 1
    assert len({token.access_token for token in got}) == 1
    assert got[0].access_token != old.access_token
    assert server.is_good(got[0].access_token)


async def test_fifty_callers_who_were_refused_make_one_refresh(
    server: LocalAuthServer, token: OAuthToken, keeper: TokenKeeper
) -> None:
    token = await keeper.token()
    server.expire_all()
    got: set[str] = set()

    async def ask() -> None:
        got.add((await keeper.other_than(token)).access_token)

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(ask)
    assert server.refreshes == 1
    assert len(got) == 1


async def test_a_caller_that_is_cancelled_does_not_end_the_refresh_for_the_others(
    server: LocalAuthServer, clock: trio.testing.MockClock, token: OAuthToken, keeper: TokenKeeper
) -> None:
    await keeper.token()
    clock.jump(3600.0)
    server.hold = trio.Event()
    got: list[OAuthToken] = []

    async def ask(scope: trio.CancelScope) -> None:
        with scope:
            got.append(await keeper.token())

    first, second = trio.CancelScope(), trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, first)
        while not server.under_way:
            await trio.sleep(0.01)
        nursery.start_soon(ask, second)
        await trio.testing.wait_all_tasks_blocked(0.01)
        first.cancel()
        await trio.testing.wait_all_tasks_blocked(0.01)
        server.hold.set()
    assert first.cancelled_caught
    assert [server.is_good(token.access_token) for token in got] == [True]
    assert server.refreshes == 1


async def test_the_end_of_the_program_lets_a_refresh_end_and_keeps_what_came_of_it(
    server: LocalAuthServer, endpoint: TokenEndpoint, file: TokenFile, calendar: Calendar
) -> None:
    await signed_in(server, endpoint, file)
    calendar.shift = 3600.0
    server.hold = trio.Event()
    async with trio.open_nursery() as nursery, Root() as root:
        keeper = keeper_of(root, endpoint, file)
        with trio.CancelScope() as gone:

            async def leave() -> None:
                while not server.under_way:
                    await trio.sleep(0.01)
                gone.cancel()
                await trio.sleep(0.05)
                assert server.hold is not None
                server.hold.set()

            nursery.start_soon(leave)
            await keeper.token()
    kept = file.read(endpoint.server)
    assert kept is not None
    assert server.is_good(kept.access_token)
    assert kept.refresh_token == server.grants[0].refresh


async def test_a_refresh_token_is_replaced_where_the_server_gives_a_new_one(
    root: Root, server: LocalAuthServer, endpoint: TokenEndpoint, file: TokenFile, clock: trio.testing.MockClock
) -> None:
    first = await signed_in(server, endpoint, file)
    keeper = keeper_of(root, endpoint, file)
    await keeper.token()
    for _ in range(3):
        clock.jump(3600.0)
        await keeper.token()
    assert server.refreshes == 3
    kept = file.read(endpoint.server)
    assert kept is not None
    assert kept.refresh_token == server.grants[0].refresh != first.refresh_token


async def test_a_refresh_token_is_kept_where_the_server_gives_none(
    root: Root, server: LocalAuthServer, endpoint: TokenEndpoint, file: TokenFile, clock: trio.testing.MockClock
) -> None:
    server.rotates = False
    first = await signed_in(server, endpoint, file)
    keeper = keeper_of(root, endpoint, file)
    await keeper.token()
    for _ in range(2):
        clock.jump(3600.0)
        await keeper.token()
    kept = file.read(endpoint.server)
    assert kept is not None
    assert kept.refresh_token == first.refresh_token != ""


@pytest.mark.parametrize("skew", [3600.0, -3600.0])
async def test_the_clock_of_the_server_does_not_matter(
    root: Root, server: LocalAuthServer, endpoint: TokenEndpoint, file: TokenFile, skew: float
) -> None:
    server.skew = skew
    await signed_in(server, endpoint, file)
    keeper = keeper_of(root, endpoint, file)
    assert server.is_good((await keeper.token()).access_token)
    assert server.refreshes == 0


async def test_a_calendar_that_is_set_back_gives_a_token_no_longer_life(
    server: LocalAuthServer, clock: trio.testing.MockClock, calendar: Calendar, token: OAuthToken, keeper: TokenKeeper
) -> None:
    await keeper.token()
    calendar.shift = -86400.0
    clock.jump(3600.0)
    await keeper.token()
    assert server.refreshes == 1


async def test_a_machine_that_slept_is_noticed_by_the_calendar(
    server: LocalAuthServer, calendar: Calendar, token: OAuthToken, keeper: TokenKeeper
) -> None:
    await keeper.token()
    calendar.shift = 3600.0
    await keeper.token()
    assert server.refreshes == 1


async def test_a_token_without_an_end_is_used_until_it_is_refused(
    root: Root, server: LocalAuthServer, endpoint: TokenEndpoint, file: TokenFile, clock: trio.testing.MockClock
) -> None:
    server.lifetime = None
    await signed_in(server, endpoint, file)
    keeper = keeper_of(root, endpoint, file)
    token = await keeper.token()
    clock.jump(10 * 365 * 86400.0)
    assert await keeper.token() == token
    assert await keeper.other_than(token) != token
    assert server.refreshes == 1


async def test_a_token_of_a_second_is_not_refreshed_for_every_request(
    root: Root, server: LocalAuthServer, endpoint: TokenEndpoint, file: TokenFile
) -> None:
    server.lifetime = 30.0
    await signed_in(server, endpoint, file)
    keeper = keeper_of(root, endpoint, file)
    for _ in range(10):
        await keeper.token()
    assert server.refreshes == 0


async def test_a_token_that_lives_no_time_at_all_is_refreshed_once_for_all_who_wait(
    root: Root, server: LocalAuthServer, endpoint: TokenEndpoint, file: TokenFile, clock: trio.testing.MockClock
) -> None:
    server.lifetime = 0.0
    await signed_in(server, endpoint, file)
    keeper = keeper_of(root, endpoint, file)
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(keeper.token)
    assert server.refreshes == 1
    clock.jump(PAUSE)
    await keeper.token()
    assert server.refreshes == 2


@pytest.mark.parametrize("how", ["revoked", "no refresh token"])
async def test_a_token_is_used_to_its_end_though_it_can_not_be_renewed(
    root: Root,
    server: LocalAuthServer,
    endpoint: TokenEndpoint,
    file: TokenFile,
    clock: trio.testing.MockClock,
    how: str,
) -> None:
    server.gives_refresh = how == "revoked"
    old = await signed_in(server, endpoint, file)
    keeper = keeper_of(root, endpoint, file)
    await keeper.token()
    server.revoke_all()
    clock.jump(3600.0 - 30.0)
    for _ in range(3):
        assert await keeper.token() == old
    assert server.refreshes == (how == "revoked")
    clock.jump(30.0)
    with pytest.raises(SignInNeeded):
        await keeper.token()


async def test_a_revoked_token_says_how_to_sign_in_and_is_not_tried_again(
    server: LocalAuthServer, token: OAuthToken, keeper: TokenKeeper
) -> None:
    token = await keeper.token()
    server.revoke_all()
    for _ in range(3):
        with pytest.raises(SignInNeeded, match=r"client 'lab': .*revoked.*; sign in: callboard auth") as error:
            await keeper.other_than(token)
        assert error.value.exit_code == 3
    assert server.refreshes == 1


async def test_who_signs_in_again_in_another_process_is_seen(
    root: Root, server: LocalAuthServer, endpoint: TokenEndpoint, file: TokenFile, clock: trio.testing.MockClock
) -> None:
    keeper = keeper_of(root, endpoint, file)
    with pytest.raises(SignInNeeded, match=says("work.models.signed_in.check_signed_in")):
        await keeper.token()
    first = await signed_in(server, endpoint, file)
    assert await keeper.token() == first
    server.revoke_all()
    with pytest.raises(SignInNeeded):
        await keeper.other_than(first)
    second = await signed_in(server, endpoint, file)
    assert await keeper.token() == second
    third = await signed_in(server, endpoint, file)  # as another person, though this one is good
    clock.jump(LOOK)
    assert await keeper.token() == third
    file.remove()
    clock.jump(LOOK)
    with pytest.raises(SignInNeeded):
        await keeper.token()


async def test_without_a_refresh_token_the_end_of_the_token_is_the_end(
    root: Root, server: LocalAuthServer, endpoint: TokenEndpoint, file: TokenFile, clock: trio.testing.MockClock
) -> None:
    server.gives_refresh = False
    await signed_in(server, endpoint, file)
    keeper = keeper_of(root, endpoint, file)
    await keeper.token()
    clock.jump(3600.0)
    with pytest.raises(SignInNeeded, match=says("io.oauth.token._Held._must_hold.2")):
        await keeper.token()


async def test_the_old_token_is_used_as_long_as_it_is_good_while_the_server_fails(
    root: Root, server: LocalAuthServer, endpoint: TokenEndpoint, file: TokenFile, clock: trio.testing.MockClock
) -> None:
    old = await signed_in(server, endpoint, file)
    keeper = keeper_of(root, endpoint, file)
    await keeper.token()
    clock.jump(3600.0 - 30.0)
    server.fails = 1_000
    assert await keeper.token() == old
    assert await keeper.token() == old  # and not a request each
    assert server.refreshes == 1
    clock.jump(31.0)
    with pytest.raises(UpstreamError, match="come back later"):
        await keeper.token()
    server.fails = 0
    clock.jump(PAUSE)
    assert server.is_good((await keeper.token()).access_token)


async def test_a_server_that_refuses_each_new_token_is_not_asked_for_another_by_every_request(
    server: LocalAuthServer, clock: trio.testing.MockClock, token: OAuthToken, keeper: TokenKeeper
) -> None:
    token = await keeper.other_than(await keeper.token())
    for _ in range(5):
        with pytest.raises(SignInNeeded, match=says("io.oauth.token._Held.renew")):
            await keeper.other_than(token)
    assert server.refreshes == 1
    clock.jump(JUST_NOW)
    assert await keeper.other_than(token) != token


async def test_a_client_that_the_server_does_not_know_is_no_matter_of_signing_in(
    server: LocalAuthServer, clock: trio.testing.MockClock, token: OAuthToken, keeper: TokenKeeper
) -> None:
    await keeper.token()
    server.secret = "s3cret-new"
    clock.jump(3600.0)
    for _ in range(3):
        with pytest.raises(OAuthRefused, match=r"client 'lab': .*unknown client: invalid_client") as error:
            await keeper.token()
        assert error.value.error == "invalid_client"
    assert server.refreshes == 1


async def test_a_token_of_another_server_is_not_sent_to_this_one(
    root: Root, server: LocalAuthServer, endpoint: TokenEndpoint, file: TokenFile
) -> None:
    await signed_in(server, endpoint, file)
    other = TokenEndpoint(server.client(token_url=f"{server.url}/elsewhere"), AuthHttp({}))
    with pytest.raises(SignInNeeded):
        await keeper_of(root, other, file).token()


async def test_a_file_that_can_not_be_used_is_told(
    root: Root, server: LocalAuthServer, endpoint: TokenEndpoint, file: TokenFile
) -> None:
    await signed_in(server, endpoint, file)
    file.path.chmod(0o644)
    with pytest.raises(ConfigError, match=says("io.oauth.token.TokenFile._bytes.4", st_mode=644)):
        await keeper_of(root, endpoint, file).token()


async def test_the_token_that_could_not_be_kept_is_used_all_the_same(
    root: Root,
    server: LocalAuthServer,
    endpoint: TokenEndpoint,
    file: TokenFile,
    monkeypatch: pytest.MonkeyPatch,
    token: OAuthToken,
    keeper: TokenKeeper,
) -> None:
    token = await keeper.token()

    def fails(_token: OAuthToken, _server: object) -> bytes:
        raise ConfigError("the disk is full")

    monkeypatch.setattr(file, "write", fails)
    fresh = await keeper.other_than(token)
    assert server.is_good(fresh.access_token)
    assert await keeper.token() == fresh


PROCESS = """
    import os, sys, time, trio
    from pathlib import Path
    from callboard.actors.io.oauth.endpoint import TokenEndpoint
    from callboard.actors.io.oauth.endpoint import AuthHttp
    from callboard.actors.io.oauth.token import Keepers
    from callboard.actors.io.oauth.authorization import AuthServer
    from callboard.actors.io.oauth.token import TokenFile
    from callboard.supervisors import Root

    async def main(folder, url, client, later):
        server = AuthServer(client_id=client, token_url=url)
        async with Root() as root:
            endpoint = TokenEndpoint(server, AuthHttp({}), lambda: time.time() + float(later))
            file = TokenFile(Path(folder), "my claude")
            keeper = Keepers(root).keeper(endpoint, file, who="x", remedy="y")
            got = set()
            if not float(later):
                refused = await keeper.token()
                Path(folder, f"ready-{os.getpid()}").touch()
                while not Path(folder, "go").exists():
                    await trio.sleep(0.01)
            async def ask():
                token = await (keeper.token() if float(later) else keeper.other_than(refused))
                got.add(token.mark)
            async with trio.open_nursery() as nursery:
                for _ in range(25):
                    nursery.start_soon(ask)
            print(*got)

    trio.run(main, *sys.argv[1:])
"""


@pytest.mark.parametrize("later", ["3600", "0"], ids=["expired", "refused"])
async def test_four_processes_at_once_make_one_refresh(
    server: LocalAuthServer, endpoint: TokenEndpoint, file: TokenFile, tmp_path: Path, later: str
) -> None:
    await signed_in(server, endpoint, file)
    server.delay = 0.5
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROCESS))
    said: list[str] = []

    async def one() -> None:
        arguments = [str(file.folder), endpoint.server.token_url, endpoint.server.client_id, later]
        done = await trio.run_process([*forked(program), *arguments], capture_stdout=True)
        said.append(done.stdout.decode().strip())

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(one)
        while later == "0" and len(list(file.folder.glob("ready-*"))) < 4:
            await trio.sleep(0.05)
        (file.folder / "go").touch()
    kept = file.read(endpoint.server)
    assert kept is not None
    assert said == [kept.mark] * 4
    assert server.refreshes == 1
    assert not server.grants[0].revoked


async def test_a_refresh_without_the_lock_on_another_machine_is_seen_after_a_refusal(
    server: LocalAuthServer,
    endpoint: TokenEndpoint,
    file: TokenFile,
    monkeypatch: pytest.MonkeyPatch,
    token: OAuthToken,
    keeper: TokenKeeper,
) -> None:
    token = await keeper.token()
    other = await signed_in(server, endpoint)
    refresh = endpoint.refresh

    async def meanwhile(token: OAuthToken) -> OAuthToken:
        file.write(other, endpoint.server)
        server.grants[0].revoked = True
        return await refresh(token)

    monkeypatch.setattr(endpoint, "refresh", meanwhile)
    assert await keeper.other_than(token) == other


async def test_no_event_error_or_name_of_an_actor_holds_a_token(
    root: Root, server: LocalAuthServer, endpoint: TokenEndpoint, file: TokenFile
) -> None:
    heard: list[object] = []
    with root.bus.listen(heard.append):
        token = await signed_in(server, endpoint, file)
        keeper = keeper_of(root, endpoint, file)
        server.revoke_all()
        with pytest.raises(SignInNeeded) as error:
            await keeper.other_than(await keeper.token())
    texts = [repr(heard), str(error.value), repr(error.value), repr(token), str(token), repr(endpoint.server)]
    texts += [json.dumps([str(actor) for actor in root.tasks.values()])]
    assert not [text for text in texts if "s3cret" in text]
