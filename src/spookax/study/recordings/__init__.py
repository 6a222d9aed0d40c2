"""Recordings: their samples on the grid of the steps, and what is wrong with them at sight."""
