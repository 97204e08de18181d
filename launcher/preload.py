"""First module that the agent's forkserver imports: it ties the forkserver to the agent's life.

It also stops the garbage collector until `launcher.preloaded`, the last one: a third of torch's import time.

The agent's pid comes in the environment, since the forkserver's arguments are multiprocessing's own.
Without it (another forkserver than the agent's) there is nothing to tie.
"""

from __future__ import annotations

import gc
import os

from launcher.lifeline import AGENT_PID, arm_server

if os.environ.get(AGENT_PID):
    arm_server(int(os.environ[AGENT_PID]))
gc.disable()
