"""Chat program: two threads, signals, restoration of the terminal, exit code.

Heavy modules are imported inside functions, because the first prompt must appear quickly.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ShuttingDown, UsageError
from .screen.threaded import PrintedAbove, ScreenThread, WaitingHandler

if TYPE_CHECKING:
    import trio

    from ...actors.front.server.serving import ListeningServer
    from ..control.servers import ControlServer, Where
    from .bridge import ScreenEnd, TrioEnd
    from .conversation import ChatConversation

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEADLY = (signal.SIGQUIT, signal.SIGABRT, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)
"""Signals with a deadly default action that the root does not handle."""

NO_TERMINAL = (
    "the chat needs a terminal, and there is none: give a prompt instead\n"
    '    callboard ask "..."       answers one prompt, also from a pipe\n'
    '    callboard run AGENT "..." runs an agent'
)


def open_chat(
    opening: Mapping[str, Any],
    *,
    config_dir: str | None = None,
    streams: bool = True,
    where: Where | None = None,
    attach: str | None = None,
    ui: bool = False,
    durable: bool | None = None,
) -> int:
    """Run a conversation at this terminal and return the exit code.

    Args:
        opening: parameters of `_chat/open`.
        where: server of the chat; None for a hub in this process.
        attach: start of the id of an open chat of the server.
        streams: True draws answers while they grow, unless the settings forbid it.
        ui: True serves the hub for the page and for other terminals.
        durable: whether its runs are durable; None for the settings.

    Raises:
        UsageError: there is no terminal.
        CallboardError: the chat could not be opened, or was lost.
        Exit: a signal ended it.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(NO_TERMINAL)
    if where is not None:
        from ..control.servers import find_server

        server = find_server(where, os.environ)
        return _Program(
            {**opening, "keep": True}, config_dir, streams=streams, there=(server, where), attach=attach
        ).play()
    if not opening.get("model"):
        _set_up(config_dir)
    return _Program(opening, config_dir, streams=streams, ui=ui, durable=durable).play()


def _set_up(config_dir: str | None) -> None:
    """Run the setup wizard if no model is configured. Without answers the chat starts with the defaults."""
    from ...actors.io.directories import config_dir as configured
    from ...actors.runs.setup.needed import needs_setup

    if sys.stderr.isatty() and needs_setup(configured(config_dir, os.environ)[0], os.environ):
        from ..wizard.setup import run_setup

        run_setup(config_dir, starts=True)


class _Program:
    def __init__(
        self,
        opening: Mapping[str, Any],
        config_dir: str | None,
        *,
        streams: bool,
        there: tuple[ControlServer, Where] | None = None,
        attach: str | None = None,
        ui: bool = False,
        durable: bool | None = None,
    ) -> None:
        self._ui = ui
        self._durable = durable
        self._opening = dict(opening)
        self._there = there
        self._attach = attach
        self._config_dir = config_dir
        self._streams = streams
        self._stop: Callable[[], None] = lambda: None
        self._thread = ScreenThread(sys.stdin, sys.stdout, ended=lambda: self._stop())
        self._conversation: ChatConversation | None = None
        self._signal: int | None = None

    def play(self) -> int:
        """Run the screen, then the server's half, and end both."""
        with ExitStack() as stack:
            stack.callback(self._thread.finish)
            self._handle_signals(stack)
            self._thread.start()
            if not self._thread.over:
                self._serve(stack)
        if self._thread.error is not None:
            raise self._thread.error
        if self._conversation is not None and self._conversation.failed is not None:
            raise self._conversation.failed
        if self._conversation is not None and self._conversation.parting:
            sys.stderr.write(f"callboard: {self._conversation.parting}\n")
        return 128 + self._signal if self._signal is not None else self._thread.code

    def _serve(self, stack: ExitStack) -> None:
        from ...actors.io.directories import config_dir as configured
        from ...actors.io.settings import load_settings
        from .bridge import TrioEnd

        directory, _ = configured(self._config_dir, os.environ)
        settings, _problems = load_settings(directory)
        ours = TrioEnd()
        ready: list[ScreenEnd] = []
        self._lead(settings.other, str(directory), ours, ready)
        above = PrintedAbove(self._print_to_stderr)
        stack.enter_context(redirect_stdout(above))
        stack.enter_context(redirect_stderr(above))
        if self._there is None:
            self._serve_locally(ours, ready[0])
        else:
            self._serve_there(*self._there, ours, ready[0])

    def _lead(self, settings: Mapping[str, Any], directory: str, ours: TrioEnd, ready: list[ScreenEnd]) -> None:
        """Start the conversation in the screen's thread."""
        import threading
        from pathlib import Path

        from ..render.answer import AnswerStyle, style_of
        from ..render.progress import mark_for
        from ..render.text import colours, redrawable
        from .bridge import ScreenEnd
        from .client import ChatClient
        from .conversation import ChatConversation
        from .display import Display
        from .reconnect import Presence
        from .screen.field import DirectoryHistory, history_file

        screen, stdout = self._thread.screen, sys.stdout

        def looks(highlight: object) -> AnswerStyle:
            said = settings if highlight is None else {**settings, "highlight": highlight}
            return style_of(said, Path(directory), stdout, os.environ)

        look = looks(None)
        display = Display(
            look,
            streams=self._streams,
            coloured=colours(stdout),
            wraps=redrawable(stdout) and look.wrap is not None,
            mark=mark_for(stdout),
        )
        # the terminal stores typed lines, not a server, so `save: false` is applied here
        file = None if settings.get("save") is False else history_file(os.environ, str(Path.cwd()))
        presence = Presence("" if self._there is None else self._there[0].url, self._attach)
        led = threading.Event()

        def lead() -> None:
            waiting = screen.handler
            client = ChatClient(ours.put)
            conversation = self._conversation = ChatConversation(client, screen, display, self._opening, presence)
            end = ScreenEnd(client.receive)
            end.begin()
            ready.append(end)
            screen.configure(vi=settings.get("keybindings") == "vi", history=DirectoryHistory(file))
            conversation.configure(settings, display, looks)
            conversation.begin()
            if isinstance(waiting, WaitingHandler):
                waiting.hand_over(conversation)
            led.set()

        self._thread.call(lead)
        led.wait(5)

    def _serve_locally(self, ours: TrioEnd, screen: ScreenEnd) -> None:
        import trio

        from ...actors.runs.root import Root
        from ..frame import play
        from ..render.progress import ProgressDisplay
        from .local import open_local_chats, serve

        on_listening: Callable[[ListeningServer], None] | None = None
        if self._ui:
            from ..actions.serve import page_notice

            def on_listening(served: ListeningServer) -> None:
                assert self._conversation is not None

                def link(chat: str) -> str:
                    return page_notice(served, served.page_of_chat(chat))

                screen.put(partial(self._conversation.served, served.url, link))

        class Aside(ProgressDisplay):
            aside = self._thread.aside

        async def body(root: Root) -> None:
            ours.begin()
            with suppress(ShuttingDown):  # a signal came before the server listened
                async with open_local_chats(root, on_listening, durable=self._durable) as chats:
                    with trio.CancelScope() as scope:
                        token = trio.lowlevel.current_trio_token()
                        self._stopping(partial(_cancel, token, scope))
                        with self._interrupts():
                            await serve(root, chats, ours, screen)
            self._signal = root.kernel.signal

        play(body, Aside(), config_dir=self._config_dir, person=False, own_screen=True)

    def _serve_there(self, server: ControlServer, where: Where, ours: TrioEnd, screen: ScreenEnd) -> None:
        import trio

        from ..control.client import play
        from .remote import serve

        talk = self._conversation
        assert talk is not None

        async def body() -> None:
            ours.begin()
            with trio.CancelScope() as scope:
                token = trio.lowlevel.current_trio_token()
                self._stopping(partial(_cancel, token, scope))
                with self._interrupts():
                    await serve(server, where.token, ours, screen, talk, talk.farewell)

        try:
            play(body)
        finally:
            self._stopping(lambda: None)

    def _stopping(self, stop: Callable[[], None]) -> None:
        """Set the function that ends the server's half when the user leaves."""
        self._stop = stop
        if self._thread.over:
            stop()

    def _print_to_stderr(self, text: str) -> None:
        if self._conversation is not None:
            self._thread.call(self._conversation.note, text)

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        """On a terminal without cursor control Ctrl-C is a signal: the screen handles it, not the root."""
        from .screen.lines import LineScreen

        screen = self._thread.screen
        if not isinstance(screen, LineScreen):
            yield
            return
        before = signal.signal(signal.SIGINT, lambda _number, _frame: self._thread.call(screen.control_c))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    # --- signals --------------------------------------------------------------------------------------------

    def _handle_signals(self, stack: ExitStack) -> None:
        """Restore the terminal before a signal ends the process.

        These handlers apply until the root installs its own, and always to signals that the root does not handle.
        """

        def end(number: int, _frame: FrameType | None) -> None:
            self._thread.guard.restore()
            os._exit(128 + number)

        def resized(_number: int, _frame: FrameType | None) -> None:
            self._thread.call(lambda: self._thread.screen.resized())

        def continued(_number: int, _frame: FrameType | None) -> None:
            self._thread.call(lambda: self._thread.screen.continued())

        handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]]
        handlers = {number: end for number in (*_ENDING, *_DEADLY) if signal.getsignal(number) != signal.SIG_IGN}
        handlers |= {signal.SIGWINCH: resized, signal.SIGCONT: continued}
        for number, handler in handlers.items():
            stack.callback(signal.signal, number, signal.signal(number, handler))


def _cancel(token: trio.lowlevel.TrioToken, scope: trio.CancelScope) -> None:
    """Cancel a scope of another thread. A signal may have ended its loop at the same moment."""
    import trio

    with suppress(trio.RunFinishedError):
        token.run_sync_soon(scope.cancel)
