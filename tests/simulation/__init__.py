"""Properties that hold whatever happens, and broken rules that are found out."""
