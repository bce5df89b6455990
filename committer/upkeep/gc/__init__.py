"""Records that stay small: what jobs of long ago left is put into few bytes, or removed."""
