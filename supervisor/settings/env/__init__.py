"""Environment files, those of the older runner included."""
