"""Real agents and real ranks: how runs start, end, and leave nothing behind."""
