"""Which kind of machine a run takes next: spot, flex-start, on-demand, or none for now."""
