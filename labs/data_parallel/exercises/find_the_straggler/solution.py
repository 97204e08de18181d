"""Find the straggler."""

from __future__ import annotations

from torch import Tensor

from labs.comms import Comms


def find_the_straggler(computed: Tensor, comms: Comms) -> tuple[int, float]:
    """Return the rank that is last in most steps, and the seconds a step that the others wait for the
    last."""
    everyone = computed.new_empty(comms.world_size * len(computed))
    comms.all_gather(everyone, computed)
    times = everyone.view(comms.world_size, -1)
    last = times.argmax(dim=0)
    straggler = int(last.bincount(minlength=comms.world_size).argmax())
    waited = (times.max(dim=0).values - times).sum(dim=0).mean()
    return straggler, float(waited)
