"""The pipeline lab: one model cut into stages, run by any schedule."""
