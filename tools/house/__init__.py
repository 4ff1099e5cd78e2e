"""How well the code follows the rules of its plan: figures of the whole (`make house`), and limits on each file
(`make check`)."""
