"""Spark applications as loads of assets: the loads, the clients to submit them, a component."""
