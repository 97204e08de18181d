"""The dp lab: one model a rank, one batch for all, gradients averaged by all-reduce."""
