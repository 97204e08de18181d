"""Pane names: each has a view and a widget, and no lab asks for one that does not exist."""

from __future__ import annotations

import pytest

from labs.catalog import catalog
from workbench.panes.registry import PANES
from workbench.screens.layout import COLUMNS, pack
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
