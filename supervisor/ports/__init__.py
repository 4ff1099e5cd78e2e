"""The promises: what the core asks of providers, stores, notifiers and clocks."""
