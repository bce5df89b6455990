"""Recovery, purge, repair, verification, and jobs that rewrite rows."""
