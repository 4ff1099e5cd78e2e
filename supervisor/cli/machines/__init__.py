"""Commands about machines and where they come from."""
