"""What a fit says, and whether to believe it."""
