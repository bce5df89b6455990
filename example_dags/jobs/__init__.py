"""Spark applications that the example DAGs submit."""
