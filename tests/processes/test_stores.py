"""The store of a run is on a port that no earlier run of the agent had."""

from __future__ import annotations

import pytest

from launcher.stores import Stores


class FakeStore:
    """A store on the port that the system gives next."""

    given = iter((5001, 5001, 5001, 5002))

    def __init__(self, _address: str, _port: int, **_options: bool) -> None:
        self.port = next(self.given)


def test_a_port_is_not_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system gives the first port again, twice; torch could not serve there a second time."""
    monkeypatch.setattr("torch._C._distributed_c10d.TCPStore", FakeStore)
    stores = Stores()
    assert [stores.new("127.0.0.1").port for _ in range(2)] == [5001, 5002]
