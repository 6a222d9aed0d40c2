"""Once through the recordings of a study, by a filter."""
