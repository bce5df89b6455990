"""Sensors that wait for a commit: of one job, or to some partitions."""
