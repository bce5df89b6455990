"""Steps of the commit protocol, one module for each, and the readers' snapshot."""
