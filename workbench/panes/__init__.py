"""One widget a file: a snapshot in, drawing out. No files, sockets, threads or timers here."""
