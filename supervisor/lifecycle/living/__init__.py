"""Is the training alive, and within its limits?"""
