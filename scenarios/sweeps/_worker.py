"""A worker of a sweep: ``python -m scenarios.sweeps._worker FOLDER``, a process that does one run after another.

It reads names of runs from standard input, one a line, and answers in JSON, a line each: `{"round": r, "rounds": n}` as
a run goes on, then `{"done": true}` or `{"failed": why}`. Standard input ends when the sweep does, however it
ended, and then so does the worker, in the middle of a run if need be: runs go on from where they were killed.
"""

import json
import os
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import TextIO

from accounting import SilodpError
from scenarios._simulation import Progress
from scenarios.sweeps._one import Runs


def main() -> None:
    """Answer names until there are no more."""
    # Whatever else prints goes to standard error, so that standard output is the answers'.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    names: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(names,), daemon=True).start()
    runs = Runs(Path(sys.argv[1]))
    while True:
        _answer(runs, names.get(), answers)


def _listen(names: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        names.put(line.rstrip("\n"))
    os._exit(0)  # the main thread may be in the middle of a run


def _answer(runs: Runs, name: str, answers: TextIO) -> None:
    def say(answer: dict[str, object]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    def tell(now: Progress) -> None:
        if now.silo is None:
            say({"round": now.round, "rounds": now.rounds})

    try:
        runs.do(name, tell)
    except SilodpError as error:
        say({"failed": str(error)})
    else:
        say({"done": True})


if __name__ == "__main__":
    main()
