"""State of a table in the store: heads, decisions, listings, heartbeats, and the store's probe."""
