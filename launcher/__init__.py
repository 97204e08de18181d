"""Starting ranks, collecting what they say, and keeping it: the process side of Worldsize."""
