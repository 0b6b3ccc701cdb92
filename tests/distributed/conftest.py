import pytest
from dask.distributed import Client, LocalCluster

from tagwise.models.leml import steps


@pytest.fixture(scope="session")
def client():
    """Two workers that all tests share."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(autouse=True)
def _small_problems_are_divided_too(monkeypatch):
    monkeypatch.setattr(steps, "_LEAST_ENTRIES", 0.01)
