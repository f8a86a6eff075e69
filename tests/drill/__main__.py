"""Run the drill: `python -m drill --seed 0 --cases 10000`, with the folder `tests` on the path."""

from drill.loading import load

if __name__ == "__main__":
    load()
    from drill.runner import main

    main()
