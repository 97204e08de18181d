"""The view models: events in, one frozen snapshot out. No textual, no torch, no files, no clock."""
