"""The errors that are the user's to mend. The command line prints them as one line; a bug keeps its traceback."""

from collections.abc import Iterator
from contextlib import contextmanager


class AccError(ValueError):
    """Base of all errors that this package raises on purpose."""


class SettingError(AccError, AssertionError):
    """A setting that cannot be; an AssertionError too, as users of SB3 expect."""


class MissingExtra(AccError, ImportError):
    """A feature whose packages are not installed."""


@contextmanager
def needs(extra: str, feature: str) -> Iterator[None]:
    """Imports that fail in its body become one line that names the extra which brings the packages."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(f"{feature}: pip install 'acc_rl[{extra}]' ({error})") from None
