"""python3 -m stallcast_capture: see command.py."""

from .errors import run_command


def main():
    run_command("command")


if __name__ == "__main__":
    main()
