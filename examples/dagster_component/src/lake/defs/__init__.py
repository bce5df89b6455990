"""What the project defines: components in folders, and what they load by."""
