"""What is special about each kind of object store, beyond the conformance suite."""
