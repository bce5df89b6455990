"""Verification of a finished S3A job by the files that it left."""
