"""Experiments and their pictures."""
