"""What needs threads, processes, disks or the private parts of other packages."""
