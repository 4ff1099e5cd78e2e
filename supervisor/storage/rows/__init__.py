"""One file for each kind of row."""
