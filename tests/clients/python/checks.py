"""Counts the checks of a program, and ends it with their result."""
import os
import sys

_program = os.path.splitext(os.path.basename(sys.argv[0]))[0]
_count = _failed = 0


def check(what, condition, more=""):
    global _count, _failed
    _count += 1
    if not condition:
        _failed += 1
        print(f"FAILED: {_program}: {what} {more}")


def equal(what, found, wanted):
    check(what, found == wanted, f"{found!r}, not {wanted!r}")


def report(title, suite="module-python"):
    """Prints the numbers of checks, and ends the program."""
    print(f"{suite}: {title}: {_count - _failed} passed, {_failed} failed")
    sys.exit(1 if _failed else 0)
