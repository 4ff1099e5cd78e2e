"""The gates of a run: what is known for its checks, and waivers."""
