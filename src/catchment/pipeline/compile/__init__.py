"""Subscriptions compiled to an index.

jobs       compile_subscriptions, and the changes that make the next version of an index
parse      rows of subscriptions to canonical filters, or to the reason why a row is not a subscription
compare    the filters of one subscriber compared with each other: duplicates and redundant ones
catalogue  the table of all subscriptions of a version: its columns, statuses and notes
shards     saved matchers, each written by one task
"""
