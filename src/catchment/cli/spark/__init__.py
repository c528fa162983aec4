"""What the commands that run on Spark share: the session, progress, streams and rejects."""
