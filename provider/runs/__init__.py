"""Airflow runs: their identity, partitions, outcomes, reports and heartbeats."""
