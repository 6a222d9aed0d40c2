"""From a study to the model, samples and first trajectory that estimators take, and single runs of them."""
