"""One command, `nearcast`, and its subcommands."""
