"""VMs: created, listed, released, and what is on record of them."""
