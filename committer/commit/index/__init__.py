"""Index of a table: what many heads name, in few objects. No answer depends on it."""
