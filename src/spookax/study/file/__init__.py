"""What study files and tables say, and what their keys must fulfil together."""
