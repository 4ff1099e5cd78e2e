"""Where there is room, what is unwise, where data lies."""
