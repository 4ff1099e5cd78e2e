"""The conformance suites, one for each port."""
