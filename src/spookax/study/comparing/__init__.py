"""Methods, laws and estimates side by side."""
