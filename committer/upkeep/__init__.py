"""Recovery, purge, repair and verification of a table after crashes."""
