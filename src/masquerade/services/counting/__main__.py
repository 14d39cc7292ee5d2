"""A person's device as a small process: `masquerade count take-part` runs this."""

import json
import sys

from masquerade.core.errors import MasqueradeError
from masquerade.services.counting.device import take_part

BAD_INPUT, UNFINISHED, INTERRUPTED = 2, 1, 130


def main(options: str) -> int:
    """Participate with options in JSON; return the exit code."""
    values = json.loads(options)
    as_json = values.pop("json")
    try:
        done = take_part(**values, tell=_say)
    except MasqueradeError as error:
        _say(str(error))
        return BAD_INPUT
    except KeyboardInterrupt:
        _say("interrupted.")
        return INTERRUPTED
    figures = {"answered": done.answered, "refused": list(done.refused), "over": done.over}
    if as_json:
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    else:
        _say(f"{done.answered:,} messages answered, {len(done.refused):,} refused.")
    if not done.over:
        _say("the count is not over: run this again, with the same file.")
    return 0 if done.over else UNFINISHED


def _say(line: str) -> None:
    sys.stderr.write(f"masquerade: {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
