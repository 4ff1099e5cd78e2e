"""The machines that there are, and the release of those that serve nobody."""
