"""Checks of S3A settings that lose, double or half show rows: one table."""
