"""Runs: their identity, partitions, outcomes, reports and heartbeats."""
