"""How runs and attempts look in a terminal."""
