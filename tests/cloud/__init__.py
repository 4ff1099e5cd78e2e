"""A Google Cloud on loopback for the tests and the demo: real HTTP, a clock of its own, machines that really boot."""
