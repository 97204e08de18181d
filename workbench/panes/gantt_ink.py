"""The colours of a schedule's picture: each role of `workbench.views.gantt_picture` as a styled segment."""

from __future__ import annotations

from rich.segment import Segment

from workbench import palette
from workbench.panes.ink import Line, faint, ink, muted, rank_tag, style
from workbench.views import gantt_picture as picture


def coloured(line: picture.Line) -> Line:
    """Return a line of the picture in colours."""
    return [_segment(touch) for touch in line]


def _segment(touch: picture.Touch) -> Segment:
    match touch.role:
        case "title":
            return ink(touch.text, palette.STRONG, bold=True)
        case "rank":
            return rank_tag(touch.number, len(touch.text))
        case "action":
            return _action(touch)
        case "message":
            return ink(touch.text, palette.LANES["comm"], bold=True)
        case "collective":
            return ink(touch.text, palette.ON_COLOUR, on=palette.LANES["comm"])
        case "muted":
            return muted(touch.text)
    return faint(touch.text)


def _action(touch: picture.Touch) -> Segment:
    """Neighbouring micro-batches differ in shade, so that their border is seen where no text fits."""
    colour = palette.ACTIONS[touch.kind][touch.number % 2]
    if touch.state == "beside":
        return Segment(touch.text, style(colour, on=palette.PANEL))
    on = palette.STRONG if touch.state == "cursor" else colour
    return Segment(touch.text, style(palette.ON_COLOUR, on=on, bold=touch.state != "plain"))
