"""The collectives lab: every collective operation, buffer by buffer, beside its definition."""
