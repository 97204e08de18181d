"""Telemetry: emitter, channel, collector, record, and what is concluded from it."""
