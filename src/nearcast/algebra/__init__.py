"""The algebra of filters: how the events that filters select relate, and filters that say the same with less.

A filter is turned into demands on the values of names (`constraints`), sets of values are computed with exactly
(`intervals`, `texts`, `value_sets`), and a search with a stated budget looks for an event that meets demands
(`search`). What it finds is held against the plain evaluator; what it proves impossible is so for every event. So each
answer is right, and where neither succeeds the answer is None: unknown.
"""
