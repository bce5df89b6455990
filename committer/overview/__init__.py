"""Overview of a table for who looks at it: partitions, jobs, failures, orphaned uploads. Only reads."""
