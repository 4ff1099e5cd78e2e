"""Programs that build and check this project; none of them is part of the product."""
