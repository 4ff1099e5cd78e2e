"""With the packages themselves: `make frameworks`."""
