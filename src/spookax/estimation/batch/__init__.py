"""The batch estimator: all recordings at once, their states and parameters, by damped least squares."""
