"""Tests of what labs train on: text, images, who reads what, and how a person is shown it."""
