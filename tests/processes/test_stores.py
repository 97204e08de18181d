"""The store of a run is on a port that no earlier run of the agent had."""

from __future__ import annotations

from typing import NamedTuple

from launcher.stores import Stores


class FakeStore(NamedTuple):
    """What is known of a store."""

    port: int


def test_a_port_is_not_used_twice() -> None:
    """The system gives the first port again, twice; torch could not serve there a second time."""
    given = iter((5001, 5001, 5001, 5002))
    stores = Stores()
    assert [stores.new(lambda: FakeStore(next(given))).port for _ in range(2)] == [5001, 5002]
