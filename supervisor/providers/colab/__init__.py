"""Machines that are sessions of Colab."""
