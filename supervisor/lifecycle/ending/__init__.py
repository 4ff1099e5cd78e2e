"""How attempts and runs end, and what becomes of their machines."""
