"""Multipart uploads under way below any path: whose each is, how much it holds, aborting."""
