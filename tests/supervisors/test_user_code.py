"""Containment of what user code raises."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from callboard.supervisors import Actor, Root
from callboard.supervisors.user_code import UserCodeError, failure_of, user_code


class Odd(BaseException):
    """A base exception of a library."""


class Unreadable(Exception):
    """An exception whose text can't be read."""

    def __str__(self) -> str:
        raise SystemExit("no text")


class Own(BaseExceptionGroup[BaseException]):
    """A group with a method that must not be called."""

    def derive(self, excs: object) -> BaseExceptionGroup[BaseException]:
        raise Odd(excs)


RAISED = [SystemExit(3), SystemExit("usage: x"), KeyboardInterrupt(), GeneratorExit(), Odd("o"), Unreadable()]


@pytest.mark.parametrize("error", RAISED, ids=repr)
async def test_a_base_exception_of_the_code_becomes_an_exception(error: BaseException) -> None:
    with pytest.raises(UserCodeError) as raised, user_code:
        raise error
    assert raised.value.__cause__ is error
    assert str(raised.value).startswith(type(error).__name__)


async def test_an_exception_passes_as_it_is() -> None:
    error = ValueError("v")
    with pytest.raises(ValueError, match="v") as raised, user_code:
        raise error
    assert raised.value is error
    assert failure_of(error) is error


leaves = st.sampled_from([ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, Odd]).map(lambda kind: kind("x"))
groups = st.recursive(
    leaves, lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda found: Own("g", found)), max_leaves=8
)


@given(error=groups)
def test_groups_are_contained_at_every_depth(error: BaseException) -> None:
    async def contained() -> None:
        with user_code:
            raise error

    def is_plain(each: BaseException) -> bool:
        return all(map(is_plain, each.exceptions)) if isinstance(each, ExceptionGroup) else isinstance(each, Exception)

    with pytest.raises(Exception) as raised:
        trio.run(contained)
    assert is_plain(raised.value)


async def test_a_cancellation_passes_also_beside_other_errors() -> None:
    async def fails() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise SystemExit(1)

    with trio.CancelScope() as alone, user_code:
        alone.cancel()
        await trio.lowlevel.checkpoint()
    assert alone.cancelled_caught
    scope = trio.CancelScope()
    with pytest.RaisesGroup(UserCodeError, flatten_subgroups=True), scope, user_code:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            nursery.start_soon(trio.sleep_forever)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught


def interrupted_inside() -> None:
    """The process gets SIGINT while the code runs."""
    signal.raise_signal(signal.SIGINT)


def interrupted_in_a_nursery() -> None:
    """As above, and the interruption arrives in a group."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as error:
        raise BaseExceptionGroup("g", [error, SystemExit(1)]) from None


@pytest.mark.parametrize("code", [interrupted_inside, interrupted_in_a_nursery])
@pytest.mark.parametrize("handler", ["trio", "python", "own"])
def test_a_real_ctrl_c_passes(code: Callable[[], None], handler: str) -> None:
    def own(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    async def run() -> None:
        if handler == "python":
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with user_code:
            code()

    before = signal.signal(signal.SIGINT, own if handler == "own" else signal.default_int_handler)
    try:
        with (
            pytest.RaisesGroup(KeyboardInterrupt, allow_unwrapped=True)
            if code is interrupted_inside
            else (pytest.RaisesGroup(KeyboardInterrupt, UserCodeError))
        ):
            trio.run(run)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_second_ctrl_c_of_an_asyncio_program_passes() -> None:
    """The first one cancels its main task."""

    async def main() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0)
        with user_code:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())
    finally:
        signal.signal(signal.SIGINT, before)


async def test_what_a_thread_raises_is_contained() -> None:
    def code() -> None:
        assert threading.current_thread() is not threading.main_thread()
        raise KeyboardInterrupt

    with pytest.raises(UserCodeError), user_code:
        await trio.to_thread.run_sync(code)


def test_a_coroutine_that_is_closed_ends() -> None:
    async def waits() -> None:
        with user_code:
            await Endless()

    waiting = waits()
    waiting.send(None)
    waiting.close()


class Endless:
    """Something to wait for outside of trio."""

    def __await__(self):  # type: ignore[no-untyped-def] # a generator of nothing in particular
        yield


@pytest.mark.parametrize("error", RAISED, ids=repr)
async def test_callbacks_that_raise_leave_the_root_running(error: BaseException) -> None:
    called: list[str] = []

    def raises(*args: object) -> None:
        called.append(type(args[0]).__name__)
        raise error

    async def body(me: Actor) -> str:
        await trio.lowlevel.checkpoint()
        return "done"

    async with Root() as root:
        with root.bus.listen(raises):
            ref = root.actor.spawn(body, link=False)
            end = await ref.wait()
            assert end.value == "done"
            assert called
            assert (await root.actor.spawn(body, link=False).wait()).value == "done"
