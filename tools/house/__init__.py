"""How well the house is in order: figures of the whole (`make house`), and caps on each file (`make check`)."""
