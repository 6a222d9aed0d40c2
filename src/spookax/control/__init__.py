"""Linearisation and control."""
