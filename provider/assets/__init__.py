"""Assets of Airflow: events of loads, keys of partitions, commits that start DAGs."""
