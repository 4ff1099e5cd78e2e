"""Programs for building and checking this project; none of them is part of the product."""
