"""The composition root: everything is made from settings here, opened and closed."""
