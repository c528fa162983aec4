"""Archives: notifications as Parquet, one directory for each UTC day.

write     archive appends notifications, compact joins small files
read      archived, replay and lines give them back
dry_run   what a filter would have matched, day by day
files     the files of an archive, and a compaction that readers see whole or not at all
"""
