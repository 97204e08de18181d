"""Stand-ins for what lies outside of the app: a machine, labs, a guide, and an agent that tests speak for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from labs.params import LabSpec, ParameterError
from launcher.client import Lost
from launcher.protocol import Reply, RunRequest, Warm
from launcher.rundir import ProcessId
from workbench.app import WorkbenchApp
from workbench.machine import Machine
from workbench.options import AppOptions
from workbench.services import Services

WIDE = (120, 40)
NARROW = (80, 24)

MACHINE = Machine(
    hostname="node0",
    system="Linux 6.1 x86_64",
    cores=2,
    memory=8_200_000_000,
    gpu_note="no GPU",
    python="3.11.2",
    torch="2.13.0",
)

GUIDE = """---
title: Data parallel
minutes: 5
---

## read: what is split

Every rank holds the whole model and takes its part of the batch.

## predict: rows of a rank

How many rows of {batch} does each of {W} ranks take?

```toml
theory = "batch / W"
measured = 'metrics["rows"]'
unit = "rows"
because = "Each takes its part."
why = "Some rank has taken more than its part."
```

## predict: losses

Do the losses of the ranks agree?

```toml
theory = "W == 1"
choices = ["yes", "no"]
values = [true, false]
because = "Their rows differ."
```

## run: four ranks

Run it, then look at `shards` and `checks`.

```toml
name = "plain"
nproc = 4
steps = 3
```

## observe: the shards

Rows are cut, parameters are not.

```toml
pane = "shards"
```

## explain: the loss at the end

What was it?

```toml
measured = 'metrics["loss"]'
tolerance = 0.1
because = "It falls."
```

## change: more

```toml
commands = ["--nproc 8", "--batch 256"]
refused = ["--nproc 1"]
```
"""


class DpParams(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters that use each kind of control."""

    variant: Annotated[Literal["naive", "flat"], Meta(description="one all-reduce a parameter, or one")] = (
        "naive"
    )
    steps: Annotated[int, Meta(ge=2, le=100_000, description="optimizer steps")] = 60
    batch: Annotated[int, Meta(ge=2, description="rows of the whole batch")] = 128
    lr: Annotated[float, Meta(gt=0, le=10, description="learning rate")] = 1e-3
    broadcast: Annotated[bool, Meta(description="let the replicas start equal")] = True


class NoParams(msgspec.Struct, frozen=True, kw_only=True):
    """A lab without parameters."""


def _validate(params: Any, world_size: int) -> None:
    if params.batch < world_size:
        raise ParameterError("--batch", f"{params.batch} rows do not fit {world_size} ranks")


LABS = {
    "collectives": LabSpec(
        id="collectives",
        title="Collectives",
        summary="What each collective does to each rank's buffer.",
        group="communication",
        params=NoParams,
        panes=("buffers", "ranks", "communication", "timeline", "checks", "log"),
        teaches=("all-reduce is reduce-scatter and all-gather", "where each element came from"),
    ),
    "dp": LabSpec(
        id="dp",
        title="Data parallel",
        summary="One model a rank, one batch for all, gradients averaged by all-reduce.",
        group="data",
        params=DpParams,
        panes=("loss", "ranks", "shards", "communication", "timeline", "utilisation", "checks", "log"),
        teaches=("losses differ by rank, parameters do not", "why the replicas must start equal"),
        min_ranks=2,
        max_ranks=64,
        default_ranks=4,
        validate=_validate,
    ),
}


class FakeAgent:
    """Remembers what it was asked; `say` replies as the agent's reader thread would."""

    def __init__(self, on_message: Callable[[Reply | Lost], None]) -> None:
        self.say = on_message
        self.warm = False
        self.requests: list[RunRequest] = []
        self.stops: list[tuple[str, str, int]] = []
        self.closed = 0
        self.killed = 0

    @property
    def identity(self) -> ProcessId | None:
        """No process."""
        return None

    def start(self) -> None:
        """Be warm at once."""
        self.warm = True
        self.say(Warm(seconds=1.0))

    def request(self, request: RunRequest) -> None:
        """Remember."""
        self.requests.append(request)

    def stop(self, run_id: str, reason: str, exit_code: int) -> None:
        """Remember."""
        self.stops.append((run_id, reason, exit_code))

    def close(self, timeout_s: float = 5.0) -> None:
        """Count."""
        self.closed += 1

    def kill(self) -> None:
        """Count."""
        self.killed += 1


class ColdAgent(FakeAgent):
    """An agent that cannot be started."""

    def start(self) -> None:
        """Refuse."""
        raise OSError(12, "Cannot allocate memory")


class Outside:
    """The services, and the agents that the app made of them."""

    def __init__(self, kind: type[FakeAgent] = FakeAgent, labs: dict[str, LabSpec] = LABS) -> None:
        self._kind = kind
        self._labs = labs
        self.agents: list[FakeAgent] = []

    def services(self) -> Services:
        """Return services that stay inside of the test."""
        return Services(
            probe=lambda: MACHINE,
            labs=lambda: dict(self._labs),
            agent=self._agent,
            guide=lambda lab_id: GUIDE,
        )

    def _agent(self, on_message: Callable[[Reply | Lost], None]) -> FakeAgent:
        self.agents.append(self._kind(on_message))
        return self.agents[-1]

    @property
    def agent(self) -> FakeAgent:
        """The newest agent."""
        return self.agents[-1]


def app_of(
    runs_dir: Path, outside: Outside, replay: Path | None = None, *, ascii_only: bool = False
) -> WorkbenchApp:
    """Return an app on a folder of runs, with nothing real outside of it."""
    options = AppOptions(ascii=ascii_only, runs_dir=runs_dir)
    return WorkbenchApp(options, replay, outside.services())


def screen_text(app: WorkbenchApp) -> str:
    """Return what stands on the screen, line by line, without colours."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"
