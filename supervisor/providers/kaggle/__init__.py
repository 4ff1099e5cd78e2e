"""Machines that are sessions of Kaggle notebooks."""
