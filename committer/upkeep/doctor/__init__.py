"""Doctor of a table and its bucket: problems of jobs, heads, the store and its tiers."""
