"""Column types of a table, their compatibility, and Hive-style partition paths."""
