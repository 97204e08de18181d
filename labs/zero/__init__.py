"""The zero lab: the same training with optimizer state, gradients and parameters sharded, stage by stage."""
