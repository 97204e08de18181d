"""Pane names: each has a view and a widget, and no lab asks for one that does not exist."""

from __future__ import annotations

import pytest

from labs.catalog import catalog
from workbench.panes.checks import WIDE, ChecksPane
from workbench.panes.registry import PANES
from workbench.screens.layout import COLUMNS, pack
from workbench.views.checks import CheckRow, ChecksSnapshot
from workbench.views.registry import VIEWS


def test_views_and_panes_have_the_same_names() -> None:
    assert set(VIEWS) == set(PANES)


@pytest.mark.parametrize("lab_id", sorted(catalog()))
def test_every_pane_that_a_lab_names_exists(lab_id: str) -> None:
    unknown = set(catalog()[lab_id].panes) - set(PANES)
    assert not unknown, f"{lab_id} names panes that do not exist: {', '.join(sorted(unknown))}"


@pytest.mark.parametrize("lab_id", sorted(catalog()))
def test_the_panes_of_a_lab_fill_rows_of_six_columns(lab_id: str) -> None:
    names = [name for name in catalog()[lab_id].panes if name in PANES]
    rows = pack(names, {name: PANES[name].SPAN for name in names})
    assert sorted(name for row in rows for name in row) == sorted(names)
    assert all(sum(PANES[name].SPAN for name in row) <= COLUMNS for row in rows)


@pytest.mark.parametrize("name", ["loss falls", "a name that is much longer than its two fifths of the line"])
@pytest.mark.parametrize("passed", [True, False])
def test_a_check_with_room_is_told_whole(name: str, passed: bool) -> None:
    row = CheckRow(
        name, passed, 0.25, "below 0.0168252, the loss of the very first step", None, "", "downhill"
    )
    drawn = ChecksPane().lines(ChecksSnapshot((row,)), WIDE, 20)
    lines = ["".join(segment.text for segment in line) for line in drawn]
    assert all(len(line) <= WIDE for line in lines)
    for words in (name, "0.25, expected below 0.0168252, the loss of the very first step", "downhill"):
        assert words in " ".join(" ".join(lines).split()), lines
