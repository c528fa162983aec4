"""Durable delivery: logs and positions around any routing core."""
