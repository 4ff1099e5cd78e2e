"""The doctor, whole: a set-up in order, and one fault at a time."""
