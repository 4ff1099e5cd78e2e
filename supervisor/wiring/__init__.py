"""The composition root: it makes everything from the settings, opens it and closes it."""
