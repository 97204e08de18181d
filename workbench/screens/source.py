"""The source beside a run: the lab's files, and the lines that may have made the span that is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from rich.syntax import Syntax
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, ScrollableContainer, Vertical
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from labs.catalog import FOLDER
from labs.params import LabSpec
from workbench import palette, source
from workbench.panes.keys_footer import KeysFooter
from workbench.screens.base import WorkbenchScreen
from workbench.source import Place, SpanName

GUTTER = 5
ABOVE = 6
"""Lines that stay visible above a marked one."""


class SourceScreen(WorkbenchScreen):
    """Files and spans at the left, the source at the right; on a small terminal the lists are above it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,o", "back", "back", key_display="esc"),
        Binding("tab", "app.focus_next", "files / spans / source", show=True),
        Binding("n", "place(1)", "next place", tooltip="the next place that may have made the span"),
        Binding("p", "place(-1)", "place before", show=False, tooltip="the place before"),
    ]

    def __init__(self, spec: LabSpec, record: Path | None = None, span: str = "") -> None:
        """`record` is that of a run, whose spans can be chosen; `span` is chosen at once."""
        super().__init__()
        self.spec = spec
        self.files = source.files_of(spec.id)
        self.spans: Sequence[SpanName] = ()
        self.file = self.files[0]
        self.span = span
        self.places: Sequence[Place] = ()
        self.at = 0
        self._record = record

    def compose(self) -> ComposeResult:
        """Two lists and the source."""
        yield Static(id="title", markup=False)
        yield Static(id="place", markup=False)
        with Horizontal(id="source-body"):
            with Vertical(id="source-lists"):
                yield OptionList(id="files")
                yield OptionList(id="spans")
            with ScrollableContainer(id="source-box"):
                yield Static(id="source", markup=False)
        yield KeysFooter()

    def on_mount(self) -> None:
        """Fill the lists; a span that was chosen in a pane is looked up at once."""
        self.set_class(self.narrow, "-narrow")
        self.query_one("#title", Static).update(
            Text.assemble((self.spec.id, f"bold {palette.ACCENT}"), f"  source of {self.spec.title}")
        )
        files, spans = self.query_one("#files", OptionList), self.query_one("#spans", OptionList)
        files.border_title, spans.border_title = "files", "spans of the run"
        files.add_options(Option(_short(file)) for file in self.files)
        if self._record is not None:
            try:
                self.spans = source.spans_of(self._record)
            except OSError as error:
                self._say(f"{self._record}: {error.strerror or error}", palette.WARN)
        spans.add_options(Option(self._span_line(span)) for span in self.spans)
        spans.display = bool(self.spans)
        self._show()
        if self.span:
            self._choose(self.span)
        (spans if self.spans and not self.span else self.query_one("#source-box")).focus()

    def on_resize(self) -> None:
        """Lists beside or above the source."""
        self.set_class(self.narrow, "-narrow")

    def _span_line(self, span: SpanName) -> Text:
        return Text.assemble((f"{span.lane:<9} ", palette.LANES.get(span.lane, palette.MUTED)), span.name)  # type: ignore[call-overload]

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Show the file, or the places of the span."""
        if event.option_list.id == "files":
            self.places, self.span, self.file = (), "", self.files[event.option_index]
            self._say("")
            self._show()
        else:
            self._choose(self.spans[event.option_index].name)

    def _choose(self, span: str) -> None:
        self.span, self.at = span, 0
        self.places = source.places_of(self.spec.id, span)
        self._turn()

    def action_place(self, by: int) -> None:
        """Turn to another line that may have made the span."""
        if self.places:
            self.at = (self.at + by) % len(self.places)
            self._turn()

    def _turn(self) -> None:
        if not self.places:
            self._say(f"{self.span}: no line of these files times it by this name", palette.WARN)
            return
        place = self.places[self.at]
        self.file = place.file
        of = f"{self.at + 1} of {len(self.places)} places" if len(self.places) > 1 else "the one place"
        self._say(f"{self.span}: {of}; {_short(place.file)}:{place.line} {place.rule}")
        self._show(place.line)

    def _say(self, text: str, colour: str = palette.MUTED) -> None:
        self.query_one("#place", Static).update(Text(text, colour, no_wrap=True, overflow="ellipsis"))

    def _show(self, line: int = 0) -> None:
        text = self.file.read_text(encoding="utf-8")
        box = self.query_one("#source-box")
        box.border_title = _short(self.file)
        dark = self.app.current_theme.dark
        self.query_one("#source", Static).update(numbered(text, line, dark=dark))
        if line:
            self.call_after_refresh(box.scroll_to, y=max(0, line - ABOVE), animate=False)
        else:
            box.scroll_home(animate=False)

    def action_back(self) -> None:
        """To the lab or the run."""
        self.dismiss()


def _short(file: Path) -> str:
    return str(file.relative_to(FOLDER.parent))


def numbered(code: str, line: int, *, dark: bool) -> Text:
    """Return the code with line numbers and colours; the marked line has a sign of its own."""
    theme = "monokai" if dark else "default"
    coloured = Syntax("", "python", theme=theme, background_color="default").highlight(code)
    text = Text(no_wrap=True)
    for number, content in enumerate(coloured.split("\n", allow_blank=False), 1):
        marked = number == line
        sign = ">" if marked else " "
        text.append(f"{sign}{number:>{GUTTER - 1}} ", f"bold {palette.WARN}" if marked else palette.FAINT)
        if marked:
            content.stylize("reverse")
        text.append_text(content).append("\n")
    return text
