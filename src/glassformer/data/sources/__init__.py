"""The sources that ship: each is one class, the recipe's `[source]` section and its behaviour."""
