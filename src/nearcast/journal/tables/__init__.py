"""The tables of a journal in an SQLite file, the file's format, and connections to it."""
