"""The table index: what many heads name, in few objects. No answer depends on it."""
