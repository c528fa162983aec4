"""Notifications matched against an index.

jobs          match, match_pairs, match_counts, unmatched: DataFrames in, a DataFrame out
worker        what a worker does with its rows, and what the driver sends it for that
shards        the shards of an index, as a worker opens them
parquet_scan  Parquet files that workers read themselves instead of Spark
write         write_matches: workers write Parquet themselves instead of Spark
scattered     an index that is too large for one worker: each task opens some of its shards
explain       match_explained: why a subscription matched a notification, or did not
"""
