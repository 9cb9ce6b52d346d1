import pytest
import torch as th


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """The nets of the tests are small: a second thread only waits."""
    th.set_num_threads(1)
