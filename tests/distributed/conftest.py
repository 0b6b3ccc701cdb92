import pytest
from dask.distributed import Client, LocalCluster


@pytest.fixture(scope="session")
def client():
    """Two workers that all tests share."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client
