"""One page a module: ask the API, shape what the template shows."""
