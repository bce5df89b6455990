"""Recovery, purge, repair, verification, and jobs that write rows again."""
