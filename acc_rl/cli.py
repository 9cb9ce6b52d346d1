"""The command ``acc``: parse, call, print. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import tyro

from acc_rl import __version__
from acc_rl.algos.registry import REGISTRY
from acc_rl.runs import records
from acc_rl.runs.spec import RunSpec, from_dict

EXIT_ERROR = 2

TRAIN_EXAMPLES = """Train one run; results go into a folder of their own.

examples:
  acc train Hopper                                    ACC with the paper's settings on Hopper-v5
  acc train HalfCheetah --algo acc-n2 --steps 1e5     two critics, 100,000 steps
  acc train Ant --critic-updates 4 --seed 3           four critic updates per env step
  acc train Pendulum-v1 --steps 1e4 --pi 64 64 --qf 64 64 --learning-starts 500 --bias.start-step 1000
  acc train --config run.toml --seed 7                settings from a file, the seed from here

algorithms:
""" + "\n".join(f"  {name:<11} {entry.about}" for name, entry in REGISTRY.items())


@dataclass(frozen=True)
class Train:
    spec: Annotated[RunSpec, tyro.conf.arg(name="")]
    out: Path = Path("runs")
    """folder for the run's folder"""
    config: Path | None = None
    """TOML file with settings by their names; flags come before it"""
    restart: bool = False
    """begin anew if the run's folder exists: what is in it is removed"""

    def run(self) -> None:
        from acc_rl.runs.train import train

        train(self.spec, self.out, restart=self.restart)


@dataclass(frozen=True)
class Eval:
    """Evaluate the policy of a run with deterministic actions.

    example:
      acc eval runs/Hopper-v5_acc_seed0 --episodes 100
    """

    run_folder: tyro.conf.Positional[Path]
    """the run's folder"""
    episodes: int = 100
    """test episodes"""
    seed: int = 0
    """decides their starts"""

    def run(self) -> None:
        from acc_rl.runs import envs
        from acc_rl.runs.evaluation import evaluate, evaluation_seeds, summary
        from acc_rl.runs.policy import load_policy

        if self.episodes < 1:
            raise ValueError(f"episodes is {self.episodes}, but must be >= 1")
        spec = read_spec(self.run_folder)
        policy = load_policy(self.run_folder)
        # seeds that no evaluation during training used
        seeds = evaluation_seeds(self.seed, 2**31 - 1, self.episodes)
        made = [envs.make(spec.env) for _ in range(min(self.episodes, 50))]
        episodes: list[dict[str, Any]] = []
        for start in range(0, self.episodes, len(made)):
            part = seeds[start : start + len(made)]
            episodes += evaluate(policy, made[: len(part)], part)
        for env in made:
            env.close()
        row = summary(episodes)
        success = f", success {100 * row['success']:.0f} %" if "success" in row else ""
        print(
            f"{spec.env}: return {row['mean_return']:.1f} +- {row['std_return']:.1f} over {self.episodes} episodes "
            f"(smallest {min(row['returns']):.1f}, largest {max(row['returns']):.1f}){success}"
        )


def read_spec(folder: Path) -> RunSpec:
    content = records.read_json(folder / records.SPEC)
    content.pop("resolved", None)
    return from_dict(content)


def whole_numbers() -> tyro.constructors.ConstructorRegistry:
    """Whole numbers may be written as 1e6 or 1_000_000."""
    registry = tyro.constructors.ConstructorRegistry()

    def parse(words: list[str]) -> int:
        text = words[0].replace("_", "")
        try:
            return int(text)
        except ValueError:
            number = float(text)
            if number != int(number):
                raise ValueError(f"{words[0]} is no whole number") from None
            return int(number)

    @registry.primitive_rule
    def rule(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[int] | None:
        if info.type is not int:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT",
            instance_from_str=parse,
            is_instance=lambda value: isinstance(value, int),
            str_from_instance=lambda value: [str(value)],
        )

    return registry


def parse_train(arguments: Sequence[str]) -> Train:
    """A config file gives the defaults that flags override."""
    default: Any = tyro.MISSING_NONPROP
    for i, word in enumerate(arguments):
        if word == "--config" or word.startswith("--config="):
            path = Path(word.partition("=")[2] or "".join(arguments[i + 1 : i + 2]))
            default = Train(spec=from_dict({"env": tyro.MISSING, **read_toml(path)}))
    command: Train = tyro.cli(
        tyro.conf.PositionalRequiredArgs[Train],
        prog="acc train",
        description=TRAIN_EXAMPLES,
        args=list(arguments),
        registry=whole_numbers(),
        default=default,
    )
    return command


def parse_eval(arguments: Sequence[str]) -> Eval:
    return tyro.cli(Eval, prog="acc eval", args=list(arguments), registry=whole_numbers())


COMMANDS: dict[str, tuple[str, Any]] = {
    "train": ("train an algorithm on a task", parse_train),
    "eval": ("evaluate the policy of a run", parse_eval),
}

HELP = """usage: acc COMMAND ...

Off-policy reinforcement learning whose critics correct their own bias.

commands:
{commands}

`acc COMMAND --help` explains each, with examples. To begin: acc train Hopper --steps 1e5
""".format(commands="\n".join(f"  {name:<8} {about}" for name, (about, _) in COMMANDS.items()))


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
        near = get_close_matches(command, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"commands are {', '.join(COMMANDS)}"
        return complain(f"unknown command {command!r}; {hint}")
    try:
        COMMANDS[command][1](rest).run()
    except (ValueError, OSError) as error:
        return complain(str(error))
    except Exception as error:
        # gymnasium's errors, without importing it for the sake of --help
        if type(error).__module__.startswith("gymnasium"):
            return complain(" ".join(str(error).split()))
        raise
    return 0


def complain(message: str) -> int:
    print(f"acc: error: {message}", file=sys.stderr)
    return EXIT_ERROR


def read_toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"config {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"config {path}: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
