"""What the stack says to its user: progress on standard error, failures as one message.

Standard output is kept for results (`bin/stack env`), so that it can be read by a shell.
"""

import sys


class Failure(Exception):
    """A definite failure: its text says what is wrong and what would mend it."""


def say(text):
    """One line of progress."""
    print(f"stack: {text}", file=sys.stderr, flush=True)
