"""Runs the explorer: `python -m spherejax.explorer FOLDER`."""

from spherejax.explorer import main

if __name__ == "__main__":
  main()
