"""Notifications matched as they arrive, with Spark's Structured Streaming.

jobs        match_stream and read_stream_output; why each notification is in the output exactly once
files       a directory that files arrive in, read batch by batch
dataframe   stream_notifications: such a directory as a streaming DataFrame
output      what a stream leaves on disk: tables of batches, and how a batch appears in them whole
"""
