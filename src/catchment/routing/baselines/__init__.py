"""Baselines: what routing systems are compared with, behind the same seam. Flooding, and one central broker."""
