"""Jobs that write rows again: resolutions of conflicts, and compaction."""
