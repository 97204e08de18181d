"""The GPU's clock on a stand-in for CUDA: time passes on the stream, and only events on it are read."""

from __future__ import annotations

import pytest
import torch

from labs.bandwidth import timing

DEVICE = torch.device("cuda", 0)


class Stream:
    """Work is queued at once and takes its time on the device; `now` (ms) is where the queue ends."""

    def __init__(self) -> None:
        self.now = 0.0
        self.synchronised = False
        self.read_too_early = False

    def event(self) -> Event:
        """An event of this stream."""
        return Event(self)

    def synchronize(self, device: torch.device) -> None:
        """Stand in for `torch.cuda.synchronize`."""
        self.synchronised = True


class Event:
    """Stands in for `torch.cuda.Event`."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.at = -1.0

    def record(self) -> None:
        """Mark the end of what is queued so far."""
        self.at = self.stream.now

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds to a later event; an error before the device has reached it."""
        self.stream.read_too_early |= not self.stream.synchronised
        return end.at - self.at


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """A stream in the place of the GPU's, and a barrier that only synchronises."""
    made = Stream()
    monkeypatch.setattr(timing, "_event", made.event)
    monkeypatch.setattr(torch.cuda, "synchronize", made.synchronize)
    monkeypatch.setattr(timing, "barrier", made.synchronize)
    return made


def test_an_iteration_is_what_the_device_needed_for_it(stream: Stream) -> None:
    durations = iter((2.0, 3.0, 5.0))

    def call() -> None:
        stream.synchronised = False
        stream.now += next(durations)

    assert timing._on_gpu(call, DEVICE, 3) == pytest.approx([0.002, 0.003, 0.005])
    assert not stream.read_too_early


def test_a_copy_is_timed_by_events_too(stream: Stream) -> None:
    class Tensor:
        device = DEVICE

        def copy_(self, source: object) -> None:
            stream.synchronised = False
            stream.now += 4.0

    assert timing._on_gpu_alone(Tensor(), Tensor()) == pytest.approx(0.004)  # type: ignore[arg-type]
    assert not stream.read_too_early
