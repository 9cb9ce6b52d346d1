"""The command ``acc``: parse, call, print. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from acc_rl import __version__
from acc_rl.algos.registry import REGISTRY
from acc_rl.core.checks import hint
from acc_rl.runs.config import read_spec, read_toml
from acc_rl.runs.interrupt import Stopped
from acc_rl.runs.spec import RunSpec, from_dict

EXIT_ERROR, EXIT_INTERRUPTED = 2, 130

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
    checkpoint_every: int = 10_000
    """env steps between two checkpoints; a run that was stopped or killed goes on from the last one"""
    on_fault: Literal["stop", "warn"] = "stop"
    """what to do when the env returns what is no number, or Q explodes"""
    restart: bool = False
    """begin anew if the run's folder exists: what is in it is removed"""
    yes: bool = False
    """do not ask before removing"""

    def run(self) -> None:
        from acc_rl.runs.train import train

        folder = self.out / self.spec.name
        if self.restart and folder.exists() and not self.yes:
            confirm(f"remove {folder} and all that is in it?")
        train(
            self.spec,
            self.out,
            restart=self.restart,
            checkpoint_every=self.checkpoint_every,
            on_fault=self.on_fault,
        )


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
        from acc_rl.runs.evaluation import evaluate_task
        from acc_rl.runs.policy import load_policy

        spec = read_spec(self.run_folder)
        row = evaluate_task(load_policy(self.run_folder), spec.env, self.episodes, self.seed)
        success = f", success {100 * row['success']:.0f} %" if "success" in row else ""
        print(
            f"{spec.env}: return {row['mean_return']:.1f} +- {row['std_return']:.1f} over {self.episodes} episodes "
            f"(smallest {min(row['returns']):.1f}, largest {max(row['returns']):.1f}){success}"
        )


@dataclass(frozen=True)
class Export:
    """Write the policy of a run as an ONNX file: raw observations in, env actions out.

    The file is compared with torch on 1000 observations before it is kept.

    example:
      acc export runs/Hopper-v5_acc_seed0 policy.onnx
    """

    run_folder: tyro.conf.Positional[Path]
    """the run's folder"""
    file: tyro.conf.Positional[Path]
    """the file to write"""

    def run(self) -> None:
        from acc_rl.runs.export import TRIED, export_onnx
        from acc_rl.runs.policy import load_policy

        difference = export_onnx(load_policy(self.run_folder), self.file)
        print(f"{self.file}: equal to torch on {TRIED} observations (largest difference {difference:.1e})")


@dataclass(frozen=True)
class Play:
    """Watch the policy of a run: in a window, or as a video where there is no screen.

    examples:
      acc play runs/Hopper-v5_acc_seed0
      acc play runs/Hopper-v5_acc_seed0 --video hopper.mp4
    """

    run_folder: tyro.conf.Positional[Path]
    """the run's folder"""
    video: Path | None = None
    """file to write instead of opening a window"""
    episodes: int = 1
    """episodes to play"""
    seed: int = 0
    """decides their starts"""

    def run(self) -> None:
        from acc_rl.runs.play import play

        spec = read_spec(self.run_folder)
        for number, result in enumerate(play(self.run_folder, spec.env, self.episodes, self.seed, self.video)):
            print(f"episode {number}: return {result['return']:.1f}, {result['length']} steps")
        if self.video is not None:
            print(f"video: {self.video}")


@dataclass(frozen=True)
class Diagnose:
    """Say whether the critic of a saved model over- or underestimates, with numbers and a plot.

    For models of SB3 and sb3-contrib (sac, td3, ddpg, tqc, dqn, qrdqn) as their `save` leaves them.

    example:
      acc diagnose model.zip --algo sac --env Hopper-v5
    """

    model: tyro.conf.Positional[Path]
    """the model's zip file"""
    algo: str
    """sac, td3, ddpg, tqc, dqn or qrdqn; with --trust-pickle also the algorithms of this package"""
    env: str
    """the task it was trained on"""
    episodes: int = 20
    """episodes to compare on"""
    seed: int = 0
    """decides their starts and the policy's noise"""
    plot: Path | None = None
    """picture of Q against return to write (default: beside the model)"""
    trust_pickle: bool = False
    """also load what the zip has pickled; it can run any code"""

    def run(self) -> None:
        from acc_rl.runs.diagnose import diagnose, load_model
        from acc_rl.runs.spec import full_name

        if self.episodes < 2:
            raise ValueError(f"episodes is {self.episodes}, but must be >= 2 for an interval")
        env_id = full_name(self.env)
        result = diagnose(
            load_model(self.model, self.algo, env_id, self.trust_pickle), env_id, self.episodes, self.seed
        )
        plot = self.plot or self.model.with_suffix(".diagnosis.png")
        result.draw(plot, f"{self.algo} on {env_id}")
        pairs = sum(map(len, result.returns))
        print(f"The critic {result.verdict()} ({pairs} pairs of {self.episodes} episodes on {env_id}); plot: {plot}")


def confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise ValueError(f"{question} Say so with --yes")
    if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        raise ValueError("nothing was done")


@dataclass(frozen=True)
class Theorem:
    """Show when ACC's estimate is unbiased (Theorem 1), and what the rule does where the true values are known.

    Prints the bias of clip(mean of n returns, Q_min, Q_max), exact and simulated, with all assumptions and with one of
    them dropped; then lets Q-learning, double Q-learning and ACC walk through a small grid with noisy rewards. Writes
    theorem and tabular as png, svg, pdf and csv. See docs/theorem.md.

    examples:
      acc theorem
      acc theorem --returns 1 3 10 30 --repeats 1e6 --seed 1 --out figures
      acc theorem --walks 10 --steps 5e3
    """

    returns: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100)
    """numbers of returns n that an estimate is made from"""
    repeats: int = 100_000
    """simulated estimates for each number"""
    walks: int = 100
    """seeds of the walk, for each algorithm"""
    steps: int = 20_000
    """env steps of the walk"""
    seed: int = 0
    """decides all random numbers"""
    out: Path = Path("theorem")
    """folder to write to"""

    def run(self) -> None:
        from rich.console import Console

        from acc_rl.report.theory import demonstrate

        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}, but must be >= 0")
        tables, paths = demonstrate(self.returns, self.repeats, self.walks, self.steps, self.seed, self.out)
        # a narrow terminal may wrap lines, but no number is cut off
        Console(width=200).print(*tables, sep="\n\n")
        print("written: " + " ".join(map(str, paths)))


@dataclass(frozen=True)
class Report:
    """Make one self-contained page of a study or of a run: statistics, the paper's figures, tables.

    examples:
      acc report studies/gym                              report/index.html, to be opened in any browser
      acc report studies/gym --figures pdf                and each figure as a file beside it
      acc report runs/Hopper-v5_acc_seed0 --out hopper    one run
      acc report studies/gym --watch                      on http://127.0.0.1:8000/, refreshed while runs go on
    """

    path: tyro.conf.Positional[Path]
    """a study's folder, any folder of run folders, one run's folder, or a file of acc study pack"""
    out: Path = Path("report")
    """folder for index.html and the figures"""
    figures: Literal["pdf", "svg", "png"] | None = None
    """write the figures as files too"""
    normalise: Path | None = None
    """CSV file with task, low, high: the returns of score 0 and 1 (default: the paper's, 1 is the best seen)"""
    seed: int = 0
    """of the bootstrap"""
    watch: bool = False
    """serve the page instead of writing it, and refresh it when records change"""
    host: str = "127.0.0.1"
    """address to serve on; another than this shows the page to other machines"""
    port: int = 8000
    """port to serve on, 0 for any that is free"""

    def run(self) -> None:
        if self.watch:
            from acc_rl.report.serve import watch

            if self.path.is_file():
                raise ValueError(f"{self.path} is a file, which does not change: leave --watch out")
            watch(self.path, self.host, self.port, self.normalise, self.seed)
            return
        from acc_rl.report.page import write
        from acc_rl.runs.archive import unpacked

        with unpacked(self.path) as path:
            index, files = write(path, self.out, self.figures, self.normalise, self.seed)
        print(f"{index}: open it in a browser" + f"; {len(files)} figures beside it" * bool(files))


def whole_numbers() -> tyro.constructors.ConstructorRegistry:
    """Whole numbers may be written as 1e6 or 1_000_000."""
    registry = tyro.constructors.ConstructorRegistry()

    def parse(words: list[str]) -> int:
        text = words[0].replace("_", "")
        try:
            return int(text)
        except ValueError:
            if not float(text).is_integer():
                raise ValueError(f"{words[0]} is no whole number") from None
            return int(float(text))

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
        Train,
        prog="acc train",
        description=TRAIN_EXAMPLES,
        args=list(arguments),
        registry=whole_numbers(),
        default=default,
    )
    return command


def parse_study(arguments: Sequence[str]) -> Any:
    from acc_rl.study.command import parse_study

    return parse_study(arguments, whole_numbers())


def parser(command: type[Any]) -> Callable[[Sequence[str]], Any]:
    name = f"acc {command.__name__.lower()}"
    return lambda arguments: tyro.cli(command, prog=name, args=list(arguments), registry=whole_numbers())


COMMANDS: dict[str, tuple[str, Callable[[Sequence[str]], Any]]] = {
    "train": ("train an algorithm on a task", parse_train),
    "study": ("train tasks x algorithms x seeds: the paper's experiments or your own", parse_study),
    "eval": ("evaluate the policy of a run", parser(Eval)),
    "play": ("watch the policy of a run", parser(Play)),
    "diagnose": ("say whether the critic of an SB3 model is biased", parser(Diagnose)),
    "report": ("make a page of a study or run", parser(Report)),
    "export": ("write the policy of a run as an ONNX file", parser(Export)),
    "theorem": ("show when the calibrated estimate is unbiased", parser(Theorem)),
}

HELP = """usage: acc COMMAND ...

Off-policy reinforcement learning whose critics correct their own bias.

commands:
{commands}

`acc COMMAND --help` explains each, with examples. To begin: acc train Hopper --steps 1e5
""".format(commands="\n".join(f"  {name:<9} {about}" for name, (about, _) in COMMANDS.items()))


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
        COMMANDS[command][1](rest).run()
    except (ValueError, OSError) as error:
        return complain(str(error))
    except Stopped as stopped:  # whoever was stopped has said so
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
