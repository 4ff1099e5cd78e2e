"""Which kind of machine a run takes next: spot, on-demand, or none for now."""
