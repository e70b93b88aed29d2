"""Runs the explorer: `python -m spherejax.explorer FOLDER`."""

from spherejax.explorer._command import main

if __name__ == "__main__":
  main()
