"""The guides check themselves: each one parses, its theory has values, and its runs measure what it says."""
