"""Recursive estimators: through a recording once, and back."""
