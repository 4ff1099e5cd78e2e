"""From the checkpoint folder to the store and back: seen, saved, pruned, restored, with the results beside them."""
