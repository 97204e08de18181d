"""What a guide's expression may say, and that it may say nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from labs.bandwidth import theory
from labs.mesh.spec import MeshParams
from workbench.expressions import ExpressionError, evaluate

NAMES: dict[str, Any] = {
    "W": 4,
    "theory": theory,
    "params": MeshParams(dim=8),
    "metrics": {"a.b": 2.5},
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * (W - 1) / W", 1.5),
        ('theory.bus_factor("all_reduce", W)', 1.5),
        ('theory.total_bytes(op="all_gather", piece_bytes=3, world_size=W)', 12),
        ('metrics["a.b"] * 1e3', 2500.0),
        ("params.dim ** 2", 64),
        ('"few" if W < 8 and not W == 3 else "many"', "few"),
        ("max(1, W) in (3, 4)", True),
        ('word("4 3 2 1", 1)', 3.0),
        ("-(7 // 2) % 2", 1),
    ],
)
def test_values(text: str, value: object) -> None:
    assert evaluate(text, NAMES) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__import__('os')", "cannot be called"),
        ("().__class__", "not allowed on tuple"),
        ("theory.__builtins__", "not allowed on module"),
        ("theory._FORMULA()", "no function '_FORMULA'"),
        ("params.__class__", "not allowed on MeshParams"),
        ("theory.bus_factor", "not allowed on module"),
        ("theory.cast.type", "not allowed"),
        ("[x for x in (1, 2)]", "ListComp is not allowed"),
        ("lambda: 1", "Lambda is not allowed"),
        ("f'{W}'", "JoinedStr is not allowed"),
        ("2 ** 9999", "above 64"),
        ("unknown + 1", "no name 'unknown'; there are: W, metrics"),
        ('metrics["c"]', "there is no 'c'"),
        ("1 / (W - 4)", "division by zero"),
        ("1 +", "cannot be read"),
        ("sum(**metrics)", "** is not allowed"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(text, NAMES)
    assert message in str(caught.value)
