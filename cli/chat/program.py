"""The chat as a program: two threads, signals, the terminal given back, an exit code.

Nothing heavy is imported above: the first prompt comes first.
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
from .screen.threaded import Above, ScreenThread, Waiting

if TYPE_CHECKING:
    import trio

    from ...actors.front.server.serving import Served
    from ..control.servers import Server, Where
    from .bridge import ScreenEnd, TrioEnd
    from .conversation import Conversation

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEADLY = (signal.SIGQUIT, signal.SIGABRT, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)
"""What ends a process that says nothing about it; the root does not own these."""

NO_TERMINAL = (
    "there is no terminal for a conversation: give a prompt\n"
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
    """Leads a conversation at this terminal; the exit code.

    Args:
        opening: parameters of `_chat/open`.
        where: the server that has the chat; None for a hub in this process.
        attach: the beginning of the id of a chat of the server that is there already.
        streams: whether answers are drawn while they grow, if the settings have nothing against it.
        ui: whether the hub in this process is served, for the page and for other terminals.
        durable: whether what its runs do is kept; None for what the settings say.

    Raises:
        UsageError: there is no terminal.
        CallboardError: the chat could not be opened, or was lost.
        Exit: a signal has ended it.
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
    """Where nothing says which model is to answer, ask; who answers nothing goes on with what there is."""
    from ...actors.io.directories import config_dir as configured
    from ...actors.runs.setup.needed import needs_setup

    if sys.stderr.isatty() and needs_setup(configured(config_dir, os.environ)[0], os.environ):
        from ..setting_up import run_setup

        run_setup(config_dir, starts=True)


class _Program:
    def __init__(
        self,
        opening: Mapping[str, Any],
        config_dir: str | None,
        *,
        streams: bool,
        there: tuple[Server, Where] | None = None,
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
        self._conversation: Conversation | None = None
        self._signal: int | None = None

    def play(self) -> int:
        """Starts the screen, then the server's half; ends both."""
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
        above = Above(self._tell)
        stack.enter_context(redirect_stdout(above))
        stack.enter_context(redirect_stderr(above))
        if self._there is None:
            self._serve_here(ours, ready[0])
        else:
            self._serve_there(*self._there, ours, ready[0])

    def _lead(self, settings: Mapping[str, Any], directory: str, ours: TrioEnd, ready: list[ScreenEnd]) -> None:
        """Has the screen led by a conversation."""
        import threading
        from pathlib import Path

        from ..render.answer import Look, look_of
        from ..render.plain import mark_for
        from ..render.text import colours, redrawable
        from .bridge import ScreenEnd
        from .client import ChatClient
        from .conversation import Conversation
        from .presence import Presence
        from .screen.history import DirectoryHistory, history_file
        from .story import Display

        screen, stdout = self._thread.screen, sys.stdout

        def looks(highlight: object) -> Look:
            said = settings if highlight is None else {**settings, "highlight": highlight}
            return look_of(said, Path(directory), stdout, os.environ)

        look = looks(None)
        display = Display(
            look,
            streams=self._streams,
            coloured=colours(stdout),
            wraps=redrawable(stdout) and look.wrap is not None,
            mark=mark_for(stdout),
        )
        # what was typed is kept by the terminal and by no server, so `save: false` is obeyed here
        file = None if settings.get("save") is False else history_file(os.environ, str(Path.cwd()))
        presence = Presence("" if self._there is None else self._there[0].url, self._attach)
        led = threading.Event()

        def lead() -> None:
            waiting = screen.handler
            client = ChatClient(ours.put)
            conversation = self._conversation = Conversation(client, screen, display, self._opening, presence)
            end = ScreenEnd(client.receive)
            end.begin()
            ready.append(end)
            screen.configure(vi=settings.get("keybindings") == "vi", history=DirectoryHistory(file))
            conversation.configure(settings, display, looks)
            conversation.begin()
            if isinstance(waiting, Waiting):
                waiting.hand_over(conversation)
            led.set()

        self._thread.call(lead)
        led.wait(5)

    def _serve_here(self, ours: TrioEnd, screen: ScreenEnd) -> None:
        import trio

        from ... import Root
        from ..frame import play
        from ..render.progress import Progress
        from .local import chats_here, serve

        tell: Callable[[Served], None] | None = None
        if self._ui:
            from ..serving import told_of_page

            def tell(served: Served) -> None:
                assert self._conversation is not None

                def link(chat: str) -> str:
                    return told_of_page(served, served.page_of_chat(chat))

                screen.put(partial(self._conversation.served, served.url, link))

        class Aside(Progress):
            aside = self._thread.aside

        async def body(root: Root) -> None:
            ours.begin()
            with suppress(ShuttingDown):  # a signal came before the server listened
                async with chats_here(root, tell, durable=self._durable) as chats:
                    with trio.CancelScope() as scope:
                        token = trio.lowlevel.current_trio_token()
                        self._stopping(partial(_cancel, token, scope))
                        with self._interrupts():
                            await serve(root, chats, ours, screen)
            self._signal = root.kernel.signal

        play(body, Aside(), config_dir=self._config_dir, person=False, own_screen=True)

    def _serve_there(self, server: Server, where: Where, ours: TrioEnd, screen: ScreenEnd) -> None:
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
        """How the server's half is ended when the person leaves."""
        self._stop = stop
        if self._thread.over:
            stop()

    def _tell(self, text: str) -> None:
        """What is written to stderr."""
        if self._conversation is not None:
            self._thread.call(self._conversation.note, text)

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        """On a terminal that has lines alone Ctrl-C is a signal: the screen has it, not the root."""
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
        """Until the root owns the signals, and always for those that it leaves, the terminal is given back first."""

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
    """Cancel a scope of another thread; the loop there may be over, by a signal that came at the same moment."""
    import trio

    with suppress(trio.RunFinishedError):
        token.run_sync_soon(scope.cancel)
