"""Reads of a table with Spark: one consistent state, by Spark's own Parquet reader or by ours."""
