"""The content graph of an index, and the summaries that follow from it. `docs/content-graph.md` has the picture.

build       write_graph: the steps, and the tables they leave
parts       the distinct filters, split into parts that one task can hold
covers      which filters cover which, between parts
forest      the edges, and what follows from them: depth, degrees, what each broker propagates
summaries   what each broker propagates, as the rows of AACS and SACS
"""
