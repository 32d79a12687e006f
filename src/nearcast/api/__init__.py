"""The Python API: what `nearcast` itself gives out. Its modules are private; import the names from `nearcast`."""
