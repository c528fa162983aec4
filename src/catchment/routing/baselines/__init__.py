"""What routing systems are compared with, behind the same interface: flooding, and one central broker."""
