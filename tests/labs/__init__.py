"""Tests of the worker, the communicator, the dp and the collectives lab, on real ranks where ranks matter."""
