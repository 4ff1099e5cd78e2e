"""A Kubernetes control plane on loopback for the tests: a strict API, its controllers, nodes that start real pods."""
