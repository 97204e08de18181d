"""The bootstrap lab: how a job comes to life, from ten sleeps to a process group."""
