"""Light, dark and sixteen colours: all text can be read on what it stands on, and sixteen means sixteen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.color import ColorType
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style

from tests.app.fakes import WIDE, Outside, app_of
from tests.app.pilot import until, until_over
from workbench import palette
from workbench.app import WorkbenchApp, run_app
from workbench.options import AppOptions
from workbench.screens.shades import READABLE, contrast, filters_of, of_sixteen

LEAST = 3.0
Recorded = Callable[[str], Path]


def written(app: WorkbenchApp) -> list[Segment]:
    """The segments of the whole screen as they go to the terminal."""
    filters = app.get_line_filters()
    background = app.screen.background_colors[1]
    segments: list[Segment] = []
    for strip in app.screen._compositor.render_strips():
        line = list(strip)
        for each in filters:
            line = each.apply(line, background)
        segments += line
    return [segment for segment in segments if segment.text.strip()]


@pytest.fixture
async def shown(
    request: pytest.FixtureRequest, recorded: Recorded, runs_dir: Path, outside: Outside
) -> list[Segment]:
    """A failed run's screen under the theme that the test names."""
    app = app_of(runs_dir, outside, recorded("dp-killed"))
    async with app.run_test(size=WIDE) as pilot:
        await until_over(pilot)
        app.theme = request.param
        await until(pilot, lambda: app.current_theme.name == request.param)
        await pilot.pause()
        return written(app)


@pytest.mark.parametrize("shown", ["worldsize-light", "solarized-light"], indirect=True)
def test_on_a_light_background_everything_can_be_read(shown: list[Segment]) -> None:
    pale = []
    for segment in shown:
        style = segment.style
        assert style is not None
        if style.color is None or style.bgcolor is None or not any(map(str.isalnum, segment.text)):
            continue
        front, back = style.color.triplet, style.bgcolor.triplet
        if front is not None and back is not None and contrast(front, back) < LEAST:
            pale.append((segment.text, style))
    assert not pale
    assert len(shown) > 100


@pytest.mark.parametrize("shown", ["worldsize-16"], indirect=True)
def test_sixteen_colours_are_sixteen_and_text_differs_from_its_ground(shown: list[Segment]) -> None:
    for segment in shown:
        style = segment.style
        assert style is not None
        for colour in (style.color, style.bgcolor):
            assert colour is None or colour.type in (ColorType.STANDARD, ColorType.DEFAULT)
        assert style.color is None or style.color != style.bgcolor, segment


def test_of_sixteen_colours_the_ranks_have_eight_and_only_what_failed_is_red() -> None:
    def number(colour: str, back: str | None = None) -> int | None:
        style = of_sixteen(Style(color=colour, bgcolor=back))
        assert style.color is not None
        return style.color.number

    ranks = [number(colour) for colour in palette.RANKS]
    assert len(set(ranks)) == len(palette.RANKS)
    red = {1, 9}
    others = {palette.WARN, palette.ACCENT, palette.GOOD, *palette.LANES.values(), *palette.ACTIONS["B"]}
    assert not red & {*ranks, *map(number, others)}
    assert number(palette.BAD) in red
    for grounds in (*palette.ACTIONS.values(), palette.LANES.values(), palette.RANKS):
        for ground in grounds:
            ink, on = number(palette.ON_COLOUR, ground), number(ground)
            assert ink == (15 if on in palette.DARK else 0)
    assert number(palette.WARN, palette.STRONG) == number(palette.GOOD, palette.MUTED) == 0, "pale on pale"


@pytest.mark.parametrize(("term", "theme"), [("xterm", "worldsize-16"), ("xterm-256color", "worldsize")])
def test_a_terminal_of_sixteen_colours_gets_them_unasked(
    term: str, theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("NO_COLOR", "")  # set to nothing it asks for nothing
    monkeypatch.delenv("COLORTERM", raising=False)
    opened: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        WorkbenchApp, "run", lambda app, **_: opened.append((app.options.theme, app.no_color))
    )
    assert run_app(AppOptions()) == 0
    assert opened == [(theme, False)]


def test_a_dark_theme_needs_no_filter() -> None:
    app = WorkbenchApp(app_of(Path("runs"), Outside()).options, None, Outside().services())
    assert filters_of(app.get_theme("worldsize") or app.current_theme) == ()
    assert contrast(ColorTriplet(0, 0, 0), ColorTriplet(255, 255, 255)) == pytest.approx(21)
    assert READABLE >= LEAST
