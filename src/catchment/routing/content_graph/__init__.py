"""Content graphs: F3, routing by node ids instead of content."""
