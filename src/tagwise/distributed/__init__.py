"""The same models on a Dask cluster (extra ``dask``): fit, predict and evaluate data in parts.

>>> from dask.distributed import Client  # doctest: +SKIP
>>> from tagwise import LEML
>>> from tagwise.distributed import fit  # doctest: +SKIP
>>> model = fit(LEML(), X_parts, Y_parts, client=Client("tcp://scheduler:8786"))  # doctest: +SKIP
>>> model.save("folder")  # doctest: +SKIP
"""

try:
    import distributed  # noqa: F401 - for the message
except ImportError as error:  # pragma: no cover - the extra is there wherever this is tested
    raise ImportError('tagwise.distributed needs Dask; install it by pip install "tagwise[dask]".') from error

from tagwise.distributed.fitting import fit
from tagwise.distributed.prediction import evaluate, predict_topk
from tagwise.distributed.texts import fit_tagger, read_files

__all__ = ["evaluate", "fit", "fit_tagger", "predict_topk", "read_files"]
