"""Bases: how people create and remove them, and the work on those that become images of disks."""
