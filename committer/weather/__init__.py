"""The store's weather, as this process meets it: what went wrong, how long to bear it, and how many
requests to send at once."""
