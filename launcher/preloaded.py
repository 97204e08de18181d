"""Last module that the agent's forkserver imports: what is loaded now stays loaded.

Frozen objects are left alone by the garbage collector of every rank, so that the pages which hold them stay
shared between the ranks.
"""

from __future__ import annotations

import gc

gc.freeze()
gc.enable()
