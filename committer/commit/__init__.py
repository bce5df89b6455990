"""Steps of the commit protocol, a module each, and the readers' snapshot."""
