"""The agent in a notebook: it claims its job, runs beside the kernel, and is watched by a cell."""
