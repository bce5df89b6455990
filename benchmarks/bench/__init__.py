"""``make bench``: loads and reads of this project beside its peers', in one run, on one store."""
