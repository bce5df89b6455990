"""A lake of one table."""
