import signal

import pytest
import torch as th
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts jobs in the background; children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """The nets of the tests are small: a second thread only waits."""
    th.set_num_threads(1)
