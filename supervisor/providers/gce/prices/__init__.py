"""Prices of machines, and the parts that machines consist of."""
