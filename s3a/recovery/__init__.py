"""Recovery of dead S3A jobs: found, judged, planned, rolled forward or back."""
