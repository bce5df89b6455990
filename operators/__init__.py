"""Operators: loads by Spark, maintenance, conflicts, publishing, restoring, recomputing."""
