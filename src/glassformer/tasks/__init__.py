"""Tasks: one file, or small folder, for each kind of problem. The registry finds them by their `kind`."""
