import pytest
import torch as th
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """The nets of the tests are small: a second thread only waits."""
    th.set_num_threads(1)
