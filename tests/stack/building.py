"""Builds with cargo so that whoever waits sees that it goes on.

On a terminal cargo shows its own progress. Elsewhere (a log, a pipe) a line every 20 s says how long
it takes and how many crates were begun, and what else cargo says is passed on.

    python3 -m stack.building WHO cargo build …
"""

import subprocess
import sys
import threading
import time

EVERY_S = 20
# What cargo says of each crate; anything else is a warning or an error.
PROGRESS = ("Compiling", "Checking", "Downloading", "Downloaded", "Fresh", "Updating", "Locking",
            "Adding", "Finished", "Executable", "Blocking", "Dirty")


def build(who, command, **options):
    """Runs a cargo command; its exit code."""
    if sys.stderr.isatty():
        return subprocess.run(command, check=False, **options).returncode
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace", **options)
    progress = _Progress(who)
    with progress:
        for line in process.stderr:
            word = line.split(maxsplit=1)[:1]
            if word and word[0] in PROGRESS:
                progress.crates += word[0] in ("Compiling", "Checking")
            else:
                sys.stderr.write(line)
        return process.wait()


class _Progress:
    """Says every now and then how far it is."""

    def __init__(self, who):
        self.who = who
        self.crates = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def _tell(self):
        began = time.monotonic()
        while not self.over.wait(EVERY_S):
            seconds = time.monotonic() - began
            print(f"{self.who}: building, {seconds:.0f} s, {self.crates} crates so far",
                  file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(build(sys.argv[1], sys.argv[2:]))
