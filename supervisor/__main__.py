"""python -m supervisor: the same as `spot`."""

from supervisor.cli.main import main

if __name__ == "__main__":
    main()
