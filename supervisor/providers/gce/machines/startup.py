"""The text of the start-up script: three files of this package, one after the other.

The same text for every machine: what differs is in its other metadata values. It is run by bash as root on each boot,
see startup.sh.
"""

from importlib import resources

PARTS = ("startup.sh", "startup_machine.sh", "startup_container.sh")


def startup_script() -> str:
    """The value of the metadata key `startup-script`; some 18 KB of the 256 KiB that a value may have."""
    folder = resources.files(__package__)
    return "\n".join(folder.joinpath(name).read_text("utf-8") for name in PARTS)
