"""Tests of the bootstrap lab: its formulas, its refusals, its view, and the lab on real ranks."""
