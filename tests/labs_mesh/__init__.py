"""Tests of the mesh lab."""
