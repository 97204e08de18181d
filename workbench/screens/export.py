"""Export from the run screen: asks for the format, writes in a thread, and says where the file is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen, Screen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from labs.params import ParameterError
from workbench.exports.formats import FORMATS, FormatName, default_output, export
from workbench.exports.output import free_name
from workbench.panes.keys_footer import KeysFooter

SAID_S = 15.0


class Formats(OptionList):
    """A list whose Enter is seen in the footer."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select", "export", key_display="enter")]


class ExportDialog(ModalScreen[FormatName | None], inherit_bindings=False):
    """Asks for the format; None where the person left without one."""

    DEFAULT_CSS = "ExportDialog { align: center middle; background: $background 60%; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,e,q", "leave", "export nothing", key_display="esc"),
    ]

    def compose(self) -> ComposeResult:
        """One line a format."""
        with Vertical(classes="dialog") as box:
            box.border_title = "export this run as"
            options = [Option(f"{name:<8}{one.says}", id=name) for name, one in FORMATS.items()]
            yield Formats(*options, markup=False)
        yield KeysFooter()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter takes the format."""
        self.dismiss(next((name for name in FORMATS if name == event.option.id), None))

    def action_leave(self) -> None:
        """Close without a format."""
        self.dismiss(None)


def ask(screen: Screen[None], folder: Path) -> None:
    """Ask for a format and export the run in `folder`: to where the app was started, else beside the run."""
    app = screen.app

    def chosen(name: FormatName | None) -> None:
        if name is not None:
            app.notify(f"exporting as {name} ...", timeout=3)
            screen.run_worker(lambda: write(name), thread=True)

    def write(name: FormatName) -> None:
        here = Path.cwd()
        place = here if os.access(here, os.W_OK) else folder
        try:
            path = export(folder, name, free_name(place / default_output(folder.name, name)))
        except ParameterError as error:
            app.call_from_thread(app.notify, str(error), severity="error", timeout=SAID_S, markup=False)
            return
        app.call_from_thread(
            app.notify,
            f"{path.name} in {path.parent}",
            title=f"exported as {name}",
            timeout=SAID_S,
            markup=False,
        )

    app.push_screen(ExportDialog(), chosen)
