"""Purge of what nobody needs: orphaned uploads, claims of closed jobs, old records."""
