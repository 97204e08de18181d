"""Tests of Worldsize."""
