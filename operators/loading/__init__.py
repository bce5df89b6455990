"""Bases of the operators that load tables: any load, services, AWS, Hadoop's committers."""
