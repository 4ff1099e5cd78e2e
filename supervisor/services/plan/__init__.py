"""The plan of a submit, before it is one."""
