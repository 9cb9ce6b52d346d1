"""A study while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from acc_rl.runs.spec import RunSpec
from acc_rl.study.attempts import How
from acc_rl.study.folder import Study
from acc_rl.study.status import RunStatus, counts, run_status, study_status

STYLES = {"finished": "green", "running": "cyan", "failed": "red", "cut off": "yellow", "waiting": "dim"}


class Progress:
    """Shown from files alone."""

    def __init__(self, study: Study, console: Console) -> None:
        self.study, self.console = study, console
        self.pause = 2.0 if console.is_terminal else 60.0
        """seconds between two looks"""
        self.shown = time.monotonic()
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Progress:
        if self.live is not None:
            self.live.start()
            self._draw()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self._draw()
            self.live.stop()

    def started(self, spec: RunSpec) -> None:
        if self.live is None:
            self._print_line(f"{spec.name}: started")

    def ended(self, spec: RunSpec, how: How) -> None:
        if self.live is None:
            status = run_status(self.study, spec, ())
            score = "" if status.score is None else f", evaluation {status.score:.1f}"
            self._print_line(f"{spec.name}: {how} at step {status.step} of {status.steps}{score}")

    def refresh(self) -> None:
        if time.monotonic() - self.shown < self.pause:
            return
        if self.live is not None:
            self._draw()
        else:
            statuses = study_status(self.study)
            for each in statuses:
                if each.state == "running":
                    self._print_line(f"{each.name}: {', '.join(cells(each)[1:])}")
            self._print_line(headline(self.study, statuses))
        self.shown = time.monotonic()

    def _draw(self) -> None:
        assert self.live is not None
        statuses = study_status(self.study)
        self.live.update(table(self.study, statuses, max(3, self.console.height - 7)), refresh=True)

    def _print_line(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True, markup=False)


def table(study: Study, statuses: Sequence[RunStatus], max_rows: int | None = None) -> Table:
    """At most ``max_rows``: running ones first, then failed, then what was finished last"""
    order = ("running", "failed", "cut off", "finished", "waiting")
    shown = list(statuses)
    caption = None
    if max_rows is not None and len(shown) > max_rows:
        shown = sorted(shown, key=lambda each: order.index(each.state))[:max_rows]
        caption = f"{len(statuses) - max_rows} more: acc study status {study.folder}"
    result = Table(title=headline(study, statuses), title_justify="left", caption=caption, expand=False)
    result.add_column("run", overflow="fold")
    for column in ("state", "progress", "score", "d", "time left"):
        result.add_column(column, justify="right", no_wrap=True)
    for each in shown:
        name, state, *rest = cells(each)
        result.add_row(Text(name), Text(state, STYLES[state]), *rest)
    return result


def headline(study: Study, statuses: Sequence[RunStatus]) -> str:
    found = counts(statuses)
    parts = [f"{number} {state}" for state, number in found.items() if number]
    # what is known of the speed, for all that is to come
    timed = [each for each in statuses if each.seconds and each.step]
    rate = sum(each.seconds or 0 for each in timed) / max(1, sum(each.step for each in timed))
    missing = sum(each.steps - each.step for each in statuses if each.state not in ("failed", "finished"))
    if timed and missing and found["running"]:
        parts.append(f"about {duration(rate * missing / found['running'])} left")
    return f"study {study.name}: {len(statuses)} runs, {', '.join(parts)}"


def cells(status: RunStatus) -> list[str]:
    score = "" if status.score is None else f"{status.score:.1f}"
    if status.success is not None:
        score += f" ({100 * status.success:.0f} %)"
    knob = "" if status.beta is None else f"beta {status.beta:.2f}"
    if status.dropped is not None:
        knob = f"{status.dropped:.2f}"
    if status.at_limit:
        knob += " (limit)"
    return [
        status.name,
        status.state,
        f"{status.step}/{status.steps}",
        score,
        knob,
        duration(status.left) if status.left is not None and status.state == "running" else "",
    ]


def duration(seconds: float) -> str:
    """1:02:03, or days and hours"""
    return str(timedelta(seconds=round(seconds)))
