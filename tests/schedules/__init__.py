"""Pipeline schedules, without processes."""
