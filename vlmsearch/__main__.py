"""``python -m vlmsearch``."""

from vlmsearch.cli import main

if __name__ == "__main__":
    main()
