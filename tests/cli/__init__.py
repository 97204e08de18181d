"""Tests of the command line, mostly as a process of its own."""
