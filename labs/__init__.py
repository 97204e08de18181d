"""The labs: one folder each, on top of the algorithms in `labs.parallel`."""
