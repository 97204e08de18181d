"""Taking along what stands in a pane: by OSC 52 to the clipboard of one's own machine, or to a file."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

from textual.screen import Screen
from textual.widget import Widget

from workbench.panes.base import Pane

CLIPBOARD_BYTES = 74_000
"""What terminals take in one sequence, encoded."""
ESC = "\x1b"


def focused_text(screen: Screen[None]) -> tuple[str, str]:
    """Return a name and the text of the focused pane; where none is, of the whole screen."""
    pane: Widget | None = screen.focused
    while pane is not None and not isinstance(pane, Pane):
        pane = pane.parent if isinstance(pane.parent, Widget) else None
    if isinstance(pane, Pane):
        return pane.NAME, pane.text()
    strips = screen._compositor.render_strips()
    return type(screen).__name__.removesuffix("Screen").lower(), "\n".join(s.text.rstrip() for s in strips)


def osc52(text: str, environment: Mapping[str, str]) -> str:
    """Return the sequence that puts `text` on the clipboard, also through tmux and GNU screen.

    tmux passes it on where `allow-passthrough` is on, and takes it itself where `set-clipboard` is on: it
    gets both forms.
    """
    encoded = base64.b64encode(text.encode()).decode()
    plain = f"{ESC}]52;c;{encoded}\x07"
    if environment.get("TMUX"):
        doubled = plain.replace(ESC, ESC + ESC)
        return f"{plain}{ESC}Ptmux;{doubled}{ESC}\\"
    if environment.get("STY"):
        return f"{ESC}P{plain}{ESC}\\"
    return plain


def fits_clipboard(text: str) -> bool:
    """Whether terminals take so much at once."""
    return len(text.encode()) * 4 / 3 <= CLIPBOARD_BYTES


def save(text: str, name: str, folders: tuple[Path, ...]) -> Path:
    """Write `text` to a new file in the first folder that takes it; returns its path.

    Raises:
        OSError: none of them does.
    """
    trouble: OSError | None = None
    for folder in folders:
        for number in range(1, 1000):
            file = folder / f"{name}-{number}.txt"
            try:
                with file.open("x", encoding="utf-8") as out:
                    out.write(text + "\n")
            except FileExistsError:
                continue
            except OSError as error:
                trouble = error
                break
            return file
    raise trouble or OSError(f"a thousand files {name}-*.txt in {folders[-1]}")
