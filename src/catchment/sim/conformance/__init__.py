"""One suite for every routing system: scripts from seeds, checkers, and what the tables should be."""
