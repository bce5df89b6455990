"""Overview of a table: its partitions, jobs, failures and orphaned uploads. Only reads."""
