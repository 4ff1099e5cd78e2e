"""VMs: created, listed and released, and Google's records about them."""
