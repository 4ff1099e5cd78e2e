"""Who asks, and which texts nobody may see."""
