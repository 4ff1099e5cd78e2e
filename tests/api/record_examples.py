"""Record the document's examples again: part of `make openapi`."""

import logging

from tests.api.recorder import write
from tests.api.scenes import record

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # scenes ask for refusals on purpose
    write(record())
