"""The machine under the training: its folder, its job, its processes, its hardware, and the command."""
