"""Recovery of dead S3A jobs: find, judge and plan them, and roll them forward or back."""
