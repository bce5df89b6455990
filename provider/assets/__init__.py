"""Airflow's assets: events of loads, keys of partitions, commits that start DAGs."""
