"""The terminal under the screens: Textual's driver, which here also bears that the terminal goes away.

When a window is closed the system sends SIGHUP and then SIGCONT, and every write fails. Textual's own driver
takes the SIGCONT for a return from ctrl-Z and starts a second writer, which dies of its first write; the app
then waits for room in a queue that nobody empties, and never ends.
"""

from __future__ import annotations

import codecs
import os
import selectors
from typing import TYPE_CHECKING, Any, TextIO, cast

from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

from workbench.console import lead_nowhere
from workbench.screens.thrift import thrifty

if TYPE_CHECKING:
    from textual.app import App


INPUT_S = 0.1
"""How long the parser waits for the rest of a sequence, and how soon the thread notices the end."""
INPUT_BYTES = 4096


class Terminal(LinuxDriver):
    """Writes to a terminal that may go."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        assert self._file is not None
        self._asked = 0
        self._lasting = Lasting(self._file)
        self._file = cast("Any", self._lasting)

    @property
    def behind(self) -> bool:
        """Whether the terminal has not taken yet what was written last: a slow link."""
        return self._asked > self._lasting.flushed

    def write(self, data: str) -> None:
        """Write, with no colour said twice."""
        self._asked += 1
        super().write(thrifty(data))

    def run_input_thread(self) -> None:
        """Hand on what is typed; bytes that are no UTF-8, or no known sequence, are passed over.

        After a tmux reattach half a mouse report may come, and its rest later.
        """
        letters = codecs.getincrementaldecoder("utf-8")(errors="ignore")
        parser = XTermParser()
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                text = ""
                if selector.select(INPUT_S):
                    try:
                        data = os.read(self.fileno, INPUT_BYTES)
                    except OSError:  # the terminal has gone; its signal ends the app
                        return
                    if not data:
                        return
                    text = letters.decode(data)
                try:
                    # To the parser an empty text is the end of all.
                    for message in (*(parser.feed(text) if text else ()), *parser.tick()):
                        self.process_message(message)
                except (ParseError, ValueError):
                    parser = XTermParser()

    def _sigcont_application(self, *_: object) -> None:
        """Begin again only where ctrl-Z had ended it."""
        if self._must_signal_resume:
            super()._sigcont_application()


class Lasting:
    """A stream that leads nowhere from its first failure on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._taken = 0
        self.flushed = 0
        """How many writes the terminal has taken."""

    def write(self, text: str) -> None:
        """Write, or not: nobody is there to see it."""
        try:
            self._stream.write(text)
        except OSError:
            lead_nowhere(self._stream)
        self._taken += 1

    def flush(self) -> None:
        """Flush; what a terminal that has gone did not take is lost."""
        taken = self._taken
        try:
            self._stream.flush()
        except OSError:
            lead_nowhere(self._stream)
        self.flushed = taken

    def fileno(self) -> int:
        """The stream's file descriptor."""
        return self._stream.fileno()
