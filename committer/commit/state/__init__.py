"""A table's state in the store: heads, decisions, listings, heartbeats, and the store's probe."""
