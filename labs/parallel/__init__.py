"""The algorithms of parallelism, each a plain importable module with its paper in the docstring."""
