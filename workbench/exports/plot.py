"""Curves as SVG: axes with round numbers, one line a series, each named at its end as well as by colour."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

import msgspec

from workbench import palette
from workbench.views.bandwidth import BandwidthSnapshot
from workbench.views.loss import LossSnapshot
from workbench.views.series import Points, thin
from workbench.views.units import size

LEFT, RIGHT, TOP, BOTTOM = 64, 96, 34, 40
COLUMNS = 600
NAME = 12
"""Height of a curve's name, in pixels."""
MANY = 16
"""More curves than this are a carpet: of more ranks the lowest and the highest are drawn."""
DASHES = ("", "6 3", "2 3", "8 3 2 3")


class Curve(msgspec.Struct, frozen=True):
    """One line: its name, colour, dash pattern and points."""

    name: str
    colour: str
    points: Points
    dash: str = ""


class Plot(msgspec.Struct, frozen=True):
    """Curves on two axes; `log_x` for sizes, whose ticks are powers of two."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    log_x: bool = False


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers from `low` to `high`, about so many."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def loss_plot(loss: LossSnapshot) -> Plot | None:
    """Return the loss of each rank that has one and their mean, None where no rank told any."""
    told = [rank for rank in loss.ranks if rank.last is not None]
    curves, of = _readable(
        [
            Curve(f"rank {one.rank}", palette.rank_colour(one.rank), one.points, _dash(one.rank))
            for one in told
        ]
    )
    if len(told) > 1:
        curves.append(Curve("mean", "currentColor", loss.mean))
    silent = len(loss.ranks) - len(told)
    title = f"loss ({silent} of {len(loss.ranks)} ranks have none)" if silent else "loss"
    return Plot(title + of, "step", "loss", tuple(curves)) if told else None


def bandwidth_plot(bandwidth: BandwidthSnapshot) -> Plot | None:
    """Return bus bandwidth by size for each op, with the link's peak; None where nothing was measured."""
    curves = [
        Curve(curve.op, palette.rank_colour(place), tuple((p.size, p.busbw) for p in curve.out_of_place))
        for place, curve in enumerate(bandwidth.ops)
        if curve.out_of_place
    ]
    if not curves:
        return None
    sizes = [x for curve in curves for x, _ in curve.points]
    for name, rate in (("link peak", bandwidth.link_peak), ("memcpy", bandwidth.memcpy)):
        if rate:
            level = ((min(sizes), rate), (max(sizes), rate))
            curves.append(Curve(name, "currentColor", level, DASHES[2]))
    return Plot("bus bandwidth", "bytes", "GB/s", tuple(curves), log_x=True)


def memory_plot(memory: dict[int, Points]) -> Plot | None:
    """Return the resident memory of each rank over time; None where it was not sampled."""
    curves, of = _readable(
        [
            Curve(f"rank {rank}", palette.rank_colour(rank), points, _dash(rank))
            for rank, points in memory.items()
        ]
    )
    return Plot("resident memory" + of, "s", "MB", tuple(curves)) if curves else None


def _readable(curves: list[Curve]) -> tuple[list[Curve], str]:
    """Return the curves to draw, and what to say of those that are left out; see `MANY`."""
    ended = sorted((curve for curve in curves if curve.points), key=lambda curve: curve.points[-1][1])
    if len(curves) <= MANY or not ended:
        return curves, ""
    return [ended[0], ended[-1]], f", of {len(curves)} ranks the lowest and the highest at the end"


def _dash(rank: int) -> str:
    """Ranks that share a colour differ in their dashes."""
    return DASHES[rank // len(palette.RANKS) % len(DASHES)]


def draw(plot: Plot, width: int, height: int) -> str:
    """Return the plot as one `<svg>` element of this size in pixels."""
    curves = [msgspec.structs.replace(c, points=_finite(c.points)) for c in plot.curves]
    points = [point for curve in curves for point in curve.points]
    if not points:
        return ""
    x_of = _axis([x for x, _ in points], LEFT, width - RIGHT, log=plot.log_x)
    lows = [y for _, y in points]
    bottom = min(lows) if min(lows) > 0.5 * max(lows) else min(0.0, min(lows))
    top = max(lows) if max(lows) > bottom else bottom + 1
    y_of = _axis([bottom, top], height - BOTTOM, TOP, log=False)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{escape(plot.title)}" '
        'font-family="ui-monospace, monospace" font-size="11">',
        f'<text x="{LEFT}" y="18" font-weight="bold" fill="currentColor">{escape(plot.title)}</text>',
        *_y_axis(ticks(bottom, top), y_of, width, plot.y_label),
        *_x_axis(plot, points, x_of, width, height),
        *_lines(curves, x_of, y_of),
        *_names(curves, x_of, y_of, height - BOTTOM),
        "</svg>",
    ]
    return "\n".join(parts)


def _finite(points: Points) -> Points:
    kept = [point for point in points if math.isfinite(point[1])]
    return tuple(thin(kept, COLUMNS))


def _axis(values: Sequence[float], start: float, end: float, *, log: bool) -> Callable[[float], float]:
    scaled = [math.log2(max(value, 1e-12)) for value in values] if log else list(values)
    low, high = min(scaled), max(scaled)

    def place(value: float) -> float:
        at = math.log2(max(value, 1e-12)) if log else value
        share = (at - low) / (high - low) if high > low else 0.5
        return round(start + share * (end - start), 1)

    return place


def _y_axis(values: list[float], y_of: Callable[[float], float], width: int, label: str) -> list[str]:
    parts = [
        f'<text x="{LEFT - 6}" y="{TOP - 6}" text-anchor="end" fill="currentColor">{escape(label)}</text>'
    ]
    for value in values:
        y, end = y_of(value), width - RIGHT
        parts += [
            f'<line x1="{LEFT}" x2="{end}" y1="{y}" y2="{y}" stroke="currentColor" opacity="0.15"/>',
            f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end" fill="currentColor">{value:g}</text>',
        ]
    return parts


def _x_axis(
    plot: Plot, points: Sequence[tuple[float, float]], x_of: Callable[[float], float], width: int, height: int
) -> list[str]:
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    if plot.log_x:
        exponents = range(math.ceil(math.log2(max(low, 1))), math.floor(math.log2(max(high, 1))) + 1)
        every = max(1, len(exponents) // 7)
        marks = [(2.0**exponent, size(2.0**exponent)) for exponent in exponents[::every]]
    else:
        whole = plot.x_label == "step"
        marks = [(v, f"{v:g}") for v in ticks(low, high, 8) if not whole or v == int(v)]
    y = height - BOTTOM + 16
    parts = [
        f'<text x="{x_of(value)}" y="{y}" text-anchor="middle" fill="currentColor">{escape(text)}</text>'
        for value, text in marks
    ]
    label = f'<text x="{width - RIGHT}" y="{y + 16}" text-anchor="end" fill="currentColor">'
    return [*parts, f"{label}{escape(plot.x_label)}</text>"]


def _lines(
    curves: Sequence[Curve], x_of: Callable[[float], float], y_of: Callable[[float], float]
) -> list[str]:
    parts = []
    for curve in curves:
        path = " ".join(f"{x_of(x)},{y_of(y)}" for x, y in curve.points)
        dash = f' stroke-dasharray="{curve.dash}"' if curve.dash else ""
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{curve.colour}" stroke-width="1.5"{dash}>'
            f"<title>{escape(curve.name)}</title></polyline>"
        )
        if len(curve.points) == 1:
            (x, y) = curve.points[0]
            parts.append(f'<circle cx="{x_of(x)}" cy="{y_of(y)}" r="2.5" fill="{curve.colour}"/>')
    return parts


def _names(
    curves: Sequence[Curve], x_of: Callable[[float], float], y_of: Callable[[float], float], bottom: float
) -> list[str]:
    """Each curve's name at its end, moved apart where ends meet; of very many the highest."""
    ends = sorted(
        (y_of(c.points[-1][1]), x_of(c.points[-1][0]), c.name, c.colour) for c in curves if c.points
    )
    ends = ends[: max(1, int((bottom - TOP) / NAME))]
    right = max((x for _, x, _, _ in ends), default=0.0)
    return [
        f'<text x="{right + 6}" y="{round(at, 1)}" fill="{colour}">{escape(name)}</text>'
        for at, (_, _, name, colour) in zip(apart([y + 4 for y, *_ in ends], TOP, bottom), ends, strict=True)
    ]


def apart(places: Sequence[float], top: float, bottom: float) -> list[float]:
    """Return rising places moved so that names at them do not meet, between `top` and `bottom`."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + NAME if found else top))
    limit = bottom
    for index in reversed(range(len(found))):
        found[index] = min(found[index], limit)
        limit = found[index] - NAME
    return found
