"""The pipeline engine and the lab pp."""
