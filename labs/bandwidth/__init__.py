"""The bandwidth lab: how long a collective takes, by size, and what that says about the links."""
