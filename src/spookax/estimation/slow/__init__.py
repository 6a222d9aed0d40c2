"""Parameters beside the states of recursive estimators: constant, or slow."""
