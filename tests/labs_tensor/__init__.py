"""Tests of tensor parallelism and its lab."""
