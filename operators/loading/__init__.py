"""Bases of the operators that load tables: the run, its job, and the service that runs it."""
