"""What all screens share: the footer's keys, help, and quitting."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.screen import Screen

if TYPE_CHECKING:
    from workbench.app import WorkbenchApp

NARROW_COLUMNS = 100
NARROW_LINES = 30


class WorkbenchScreen(Screen[None], inherit_bindings=False):
    """A screen with the common keys; `narrow` where panes have to take turns."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "app.focus_next", "next", show=False),
        Binding("shift+tab", "app.focus_previous", "previous", show=False),
    ]

    @property
    def workbench(self) -> WorkbenchApp:
        """The app, by its own type."""
        return cast("WorkbenchApp", self.app)

    @property
    def narrow(self) -> bool:
        """Whether the terminal is too small for a grid."""
        return self.app.size.width < NARROW_COLUMNS or self.app.size.height < NARROW_LINES
