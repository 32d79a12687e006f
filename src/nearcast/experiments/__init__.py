"""Simulated and real data as CloudEvents and definitions: importers, scenarios, links that come and go.

Everything here is a pure function of its arguments: a seed, a file read in place. `importers.IMPORTERS` and
`importers.SCENARIOS` name what there is.
"""
