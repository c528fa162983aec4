"""Conformance of durable delivery: scripts with durable clients and failing disks, on every routing system."""
