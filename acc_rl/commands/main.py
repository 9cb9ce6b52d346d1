"""The command ``acc``: find the command, run it, turn errors into one line. Heavy imports wait until needed."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from acc_rl import __version__
from acc_rl.commands.parsing import one_line
from acc_rl.core.checks import hint
from acc_rl.core.errors import AccError
from acc_rl.runs.interrupt import Stopped

EXIT_ERROR, EXIT_INTERRUPTED = 2, 130

COMMANDS = {
    "train": "train an algorithm on a task",
    "study": "train tasks x algorithms x seeds: the paper's experiments or your own",
    "eval": "evaluate the policy of a run",
    "play": "watch the policy of a run",
    "diagnose": "say whether the critic of an SB3 model is biased",
    "report": "make a page of a study or run",
    "export": "write the policy of a run as an ONNX file",
    "theorem": "show when the calibrated estimate is unbiased",
}

HELP = """usage: acc COMMAND ...

Off-policy reinforcement learning whose critics correct their own bias.

commands:
{commands}

`acc COMMAND --help` explains each, with examples. To begin: acc train Hopper --steps 1e5
""".format(commands="\n".join(f"  {name:<9} {about}" for name, about in COMMANDS.items()))


def parse(command: str, arguments: Sequence[str]) -> Any:
    """The command with its arguments, from the module that has its name"""
    module = import_module(f"acc_rl.commands.{command}")
    if parser := getattr(module, f"parse_{command}", None):
        return parser(arguments)
    return one_line(getattr(module, command.capitalize()), f"acc {command}", arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if words[0] == "--version":
        print(__version__)
        return 0
    command, *rest = words
    if command not in COMMANDS:
        return complain(f"unknown command {command!r}; {hint(command, COMMANDS, 'commands are')}")
    warnings.showwarning = show_warning
    try:
        parse(command, rest).run()
    except (AccError, OSError) as error:
        return complain(str(error))
    except Stopped as stopped:  # the command has printed why
        return stopped.exit_code
    except KeyboardInterrupt:
        complain("interrupted")
        return EXIT_INTERRUPTED
    except Exception as error:
        # gymnasium's errors, without importing it for the sake of --help
        if type(error).__module__.startswith("gymnasium"):
            return complain(" ".join(str(error).split()))
        raise
    return 0


def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"acc: warning: {message}", file=sys.stderr)


def complain(message: str) -> int:
    print(f"acc: error: {message}", file=sys.stderr)
    return EXIT_ERROR


if __name__ == "__main__":
    sys.exit(main())
