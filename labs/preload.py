"""What the agent's forkserver loads before any run, so that a rank starts by a fork and not by an import.

The lifeline comes first by the launcher's own preload; here are torch and what the labs need of it.
"""

from __future__ import annotations

import numpy  # noqa: F401  torch's tensors turn into arrays for hashing
import torch
import torch.distributed
import torch.distributed.device_mesh
import torch.nn
import torch.optim  # noqa: F401

import labs.context
import labs.exercise_worker
import labs.worker  # noqa: F401
