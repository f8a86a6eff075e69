"""The attacks: a module for each kind, with a function `cases` that gives its cases, drawn by a seed."""
