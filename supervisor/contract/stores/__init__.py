"""The errors of every object store, and the store that is a folder."""
