"""What `nearcast demo` performs: a story (`bushfire`) on a running system (`performance`), over slow links (`link`)."""
