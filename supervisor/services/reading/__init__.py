"""Readers of runs, history, costs, offers and the supervisor itself; nothing here changes anything."""
