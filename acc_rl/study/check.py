"""Whether every algorithm of a study takes its settings, before the first of its runs begins."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from acc_rl.core.errors import AccError, SettingError
from acc_rl.runs.naming import given
from acc_rl.runs.spec import RunSpec, from_dict

PARTS = ("algo", "settings", "bias")
# in a process of its own, which gives back the memory that torch takes
MAIN = f"import sys; sys.path[:] = filter(None, sys.path); from {__name__} import main; sys.exit(main())"


def check_variants(specs: Sequence[RunSpec]) -> None:
    """Raise a SettingError that names the first variant whose model cannot be built."""
    variants = {json.dumps([spec.as_dict()[part] for part in PARTS]): spec for spec in reversed(specs)}
    changed = [spec for spec in reversed(variants.values()) if given(spec.settings) or given(spec.bias)]
    if not changed:  # presets are as they should be
        return
    text = json.dumps([spec.as_dict() for spec in changed])
    done = subprocess.run([sys.executable, "-c", MAIN], input=text, capture_output=True, text=True)
    if done.returncode:
        raise SettingError(done.stderr.strip() or f"the settings could not be checked: exit code {done.returncode}")


def main() -> int:
    from acc_rl.runs.model import check_settings

    for spec in map(from_dict, json.load(sys.stdin)):
        try:
            check_settings(spec)
        except AccError as error:
            print(f"{spec.algo} of the study: {error}", file=sys.stderr)
            return 1
    return 0
