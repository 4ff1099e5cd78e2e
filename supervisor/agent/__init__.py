"""The agent that runs beside the training; standard library only."""
