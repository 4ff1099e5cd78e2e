"""Programs that make the cases of the corpus: `make corpus`."""
