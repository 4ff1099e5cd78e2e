"""A Kaggle of the tests: its API over HTTP, and sessions that run a notebook or only pretend to."""
