"""The objects of one run behind the supervisor's door: the store of a machine that has no key."""
