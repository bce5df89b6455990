"""Submissions by spark-submit: preflight, properties, credentials, and the package's zip."""
