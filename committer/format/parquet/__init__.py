"""Parquet files of a table: written into pending uploads, and read back."""
