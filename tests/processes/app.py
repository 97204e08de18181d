"""A workbench to be killed: starts an agent and a run, says so on stdout, then waits.

Arguments: the folder for runs, an act of the entrypoint, and `detach` to let go of the agent.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.processes.harness import Runner


def main() -> None:
    """Print the agent's pid and the run's folder when all ranks are ready."""
    folder, act, *more = sys.argv[1:]
    runner = Runner(Path(folder))
    runner.warm()
    run = runner.start(world_size=2, do=act, who=0, loops=20, pause_s=0.1)
    run.all_ready()
    if more == ["detach"]:
        runner.client.detach()
    sys.stdout.write(f"{runner.session} {run.folder}\n")
    sys.stdout.flush()
    time.sleep(600)


if __name__ == "__main__":
    main()
