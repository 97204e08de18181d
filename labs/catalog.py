"""The labs that exist: every folder of `labs/` with a `spec.py`, found by listing. Loads no torch."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path

from labs.params import LabSpec, nearest

FOLDER = Path(__file__).parent
GROUPS = ("communication", "data", "model", "scale", "beyond")
ORDER = ("bootstrap", "collectives", "bandwidth", "mesh", "dp", "zero", "tp", "pp", "3d")


class UnknownLabError(ValueError):
    """A lab id that no folder declares; the message names the labs there are."""


@cache
def catalog() -> dict[str, LabSpec]:
    """Return every lab's spec by id, in the order of the course."""
    specs = {spec.id: spec for _, spec in _modules()}
    return dict(sorted(specs.items(), key=lambda item: (_place(item[0]), item[0])))


@cache
def _modules() -> tuple[tuple[str, LabSpec], ...]:
    folders = sorted(path.parent.name for path in FOLDER.glob("*/spec.py"))
    return tuple((name, importlib.import_module(f"labs.{name}.spec").SPEC) for name in folders)


def _place(lab_id: str) -> int:
    return ORDER.index(lab_id) if lab_id in ORDER else len(ORDER)


def spec_of(lab_id: str) -> LabSpec:
    """Return the lab's spec.

    Raises:
        UnknownLabError: no lab has that id.
    """
    labs = catalog()
    if lab_id not in labs:
        hint = nearest(lab_id, list(labs))
        raise UnknownLabError(f"no lab named {lab_id!r}; {hint}labs: {', '.join(labs)}")
    return labs[lab_id]


def package_of(lab_id: str) -> str:
    """Return the import package of a lab, `labs.data_parallel` for `dp`."""
    spec_of(lab_id)
    return next(f"labs.{name}" for name, spec in _modules() if spec.id == lab_id)
