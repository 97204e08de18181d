"""What all screens share: the footer's keys, help, and quitting."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.screen import Screen

from workbench.screens.keep import fits_clipboard, focused_text, osc52, save
from workbench.screens.terminal import Terminal

if TYPE_CHECKING:
    from workbench.app import WorkbenchApp

NARROW_COLUMNS = 100
NARROW_LINES = 30
AGAIN_S = 0.002
"""How soon a screen reads on that has more of a record to read."""


class WorkbenchScreen(Screen[None], inherit_bindings=False):
    """A screen with the common keys; `narrow` where panes have to take turns."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "app.focus_next", "to the next field or pane", show=False),
        Binding("shift+tab", "app.focus_previous", "to the field or pane before", show=False),
        Binding("y", "copy", "copy the focused pane", show=False),
        Binding("w", "save", "write the focused pane to a file", show=False),
    ]

    def read_on(self, read: Callable[[], bool]) -> None:
        """Call `read` until it says that nothing is left, with room for keys and drawing in between."""
        if self._reads:
            return

        def again() -> None:
            self._reads = read()
            if self._reads:
                self.set_timer(AGAIN_S, again)

        self._reads = True
        self.set_timer(AGAIN_S, again)

    @property
    def terminal_behind(self) -> bool:
        """Whether the terminal still takes what was drawn before: another frame would only wait in line."""
        driver = self.app._driver
        return isinstance(driver, Terminal) and driver.behind

    _reads = False
    """Whether `read_on` is at work."""

    def folders(self) -> tuple[Path, ...]:
        """Return where files of this screen go: the first of them that can be written."""
        return (Path.cwd(), Path(tempfile.gettempdir()))

    def action_copy(self) -> None:
        """Put the text of the focused pane on the clipboard of the terminal, by OSC 52."""
        name, text = focused_text(self)
        driver = self.app._driver
        if not fits_clipboard(text):
            self.notify(f"{name} is too long for the clipboard: w writes it to a file", severity="warning")
        elif driver is not None:
            driver.write(osc52(text, os.environ))
            self.notify(f"copied {name}, if the terminal allows it; w writes it to a file")

    def action_save(self) -> None:
        """Write the text of the focused pane to a file, and say which."""
        name, text = focused_text(self)
        try:
            file = save(text, name, self.folders())
        except OSError as error:
            self.notify(f"{name} cannot be written: {error}", severity="error")
            return
        self.notify(f"wrote {file}", timeout=10)

    @property
    def workbench(self) -> WorkbenchApp:
        """The app, by its own type."""
        return cast("WorkbenchApp", self.app)

    @property
    def narrow(self) -> bool:
        """Whether the terminal is too small for a grid."""
        return self.app.size.width < NARROW_COLUMNS or self.app.size.height < NARROW_LINES
