"""The identification of a study, its result, and predictions by that."""
