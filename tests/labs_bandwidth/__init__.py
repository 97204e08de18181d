"""Tests of the bandwidth lab: formulas, table and links without processes, then the lab on real ranks."""
