"""Verification of a finished S3A job by the files it left."""
