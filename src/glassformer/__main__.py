"""`python -m glassformer` is `glassformer`."""

from glassformer.cli import main

if __name__ == "__main__":
    main()
