"""How attempts and runs end, and what happens to their machines."""
