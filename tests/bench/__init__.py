"""Benchmarks: each a command that prints its numbers beside what they are held against."""
