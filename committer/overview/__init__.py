"""Overview of a table for who looks at it: partitions, jobs, failures, left-overs. Only reads."""
