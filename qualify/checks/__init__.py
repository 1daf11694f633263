"""One file a check, one function, one verdict type."""
