"""Times, memory and sensitivity of the package: `python -m benchmarks --list`."""
