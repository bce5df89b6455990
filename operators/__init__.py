"""Operators: Spark submissions, and maintenance of what interrupted jobs left."""
