"""The mesh lab: ranks on a grid with named axes, and the process groups that each axis makes."""
