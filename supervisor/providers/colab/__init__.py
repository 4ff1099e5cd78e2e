"""Machines that are sessions of Google Colab."""
