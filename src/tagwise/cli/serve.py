"""``tagwise serve``: taggers over HTTP."""

from __future__ import annotations

import copy
import ipaddress
import os
import socket
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tagwise import Tagger
from tagwise.cli.options import Given, flag, option, verb
from tagwise.exceptions import InvalidInputError, ModelFormatError
from tagwise.store.folder import parse_manifest, read_manifest

# Seconds that an unused connection stays open: longer than the minute for which proxies as a rule rely on it.
_KEEP_ALIVE = 75
# Connections of one process; beyond them uvicorn answers 503. Usual systems allow 1,024 open files.
_MOST_CONNECTIONS = 900
# Seconds in which a process must say so; on a busy machine, imports take long. One that dies just when it is asked is
# missed for as long.
_SIGN_OF_LIFE = 60


@verb(
    click.Argument(["folders"], metavar="[NAME=]FOLDER...", nargs=-1, required=True),
    option("--host", "Address to listen at.", default="127.0.0.1"),
    option("--port", "Port to listen at.", default=8000, type=click.IntRange(0, 65535)),
    option(
        "--allow-host NAME",
        "Also answer requests that are addressed to this name; repeatable. Without keys, only localhost and IP "
        "addresses are answered to, with keys any name.",
        name="hosts",
        multiple=True,
    ),
    option("--key-file FILE", "Keys, one per line, of which every request must carry one."),
    option("--feedback FILE.jsonl", "Record what people accept and reject in this file."),
    option("--queue FILE", "Texts to work through on the page."),
    option("--text COLUMN", "Column of the texts of --queue [default: guessed].", multiple=True),
    option("--workers", "Number of processes.", default=1, type=click.IntRange(1, 64)),
    option(
        "--most-per-minute N",
        "Requests per minute that a process takes from one key [default: unlimited].",
        type=click.IntRange(1, 1_000_000),
    ),
    flag("--log-texts", "Also log the texts of requests [default: nothing of them]."),
    examples=(
        "tagwise serve tagger",
        "tagwise serve packages=tagger books=other-tagger --feedback feedback.jsonl",
        "tagwise serve tagger --host 0.0.0.0 --key-file keys.txt --workers 4",
    ),
)
def command(given: Given) -> None:
    """Serve taggers over HTTP, each under its NAME, by default that of its FOLDER.

    At / is a page to try them on; at /openapi.json the description of the API. A model that is saved into a FOLDER
    while the server runs replaces the old one without a failed request. Needs the extra server.
    """
    host, hosts = given.host, given.hosts
    try:
        import uvicorn

        from tagwise.serving import ServingOptions, create_app
        from tagwise.serving.app import ENVIRONMENT, OPTIONS
        from tagwise.serving.monitoring import MULTIPROCESS
        from tagwise.serving.options import read_keys
    except ImportError as error:
        raise InvalidInputError(
            f"the server needs {error.name}, which is not installed: pip install 'tagwise[server]'"
        ) from None
    keys = () if given.key_file is None else read_keys(given.key_file)
    if not keys and not _is_loopback(host):
        raise InvalidInputError(
            f"--host: {host} can be reached from other machines; add --key-file FILE: requests must then carry "
            "one of its keys."
        )
    if given.most_per_minute is not None and not keys:
        raise InvalidInputError(
            "--most-per-minute: it limits the requests of each key; add --key-file FILE, or leave it out."
        )
    options = ServingOptions(
        _named(given.folders),
        feedback=given.feedback,
        queue=given.queue,
        queue_text=given.text,
        keys=keys,
        hosts=tuple(map(str.lower, hosts)) if hosts or not keys else None,
        most_per_minute=given.most_per_minute or 0,
        log_texts=given.log_texts,
    )
    _require_free(host, given.port)
    logs = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)
    logs["loggers"]["tagwise.serving"] = {"handlers": ["default"], "level": "INFO", "propagate": False}
    settings: dict[str, Any] = {"host": host, "port": given.port, "access_log": False, "log_config": logs}
    settings |= {"timeout_graceful_shutdown": 10, "timeout_keep_alive": _KEEP_ALIVE}
    # Of web sockets uvicorn would log the addresses.
    settings |= {"limit_concurrency": _MOST_CONNECTIONS, "ws": "none"}
    app = create_app(options)  # for several processes too: what they would refuse, one after the other, is refused here
    if given.workers == 1:
        uvicorn.run(app, **settings)
        return
    del app
    # Only its owner may read the folder: the options hold the keys.
    with tempfile.TemporaryDirectory(prefix="tagwise-serve-") as folder:
        for name in ("counts", "models"):
            os.mkdir(os.path.join(folder, name))
        options = replace(options, shared=os.path.join(folder, "models"))
        path = Path(folder) / "options.json"
        path.write_bytes(OPTIONS.dump_json(options))
        os.environ[ENVIRONMENT] = str(path)
        os.environ[MULTIPROCESS] = os.path.join(folder, "counts")
        uvicorn.run(
            "tagwise.serving.app:from_environment",
            factory=True,
            workers=given.workers,
            **settings,
            timeout_worker_healthcheck=_SIGN_OF_LIFE,
        )


def _named(folders: tuple[str, ...]) -> dict[str, str]:
    named: dict[str, str] = {}
    for stated in folders:
        name, equals, folder = stated.partition("=")
        if not equals or not folder:
            name, folder = Path(stated).resolve().name, stated
        if name in named:
            raise click.BadParameter(f"two taggers are called {name!r}; name them: NAME=FOLDER.", param_hint="FOLDER")
        if not os.path.isdir(folder):
            raise InvalidInputError(f"{folder} is not a folder; name that of a tagger, which tagwise train writes.")
        try:
            kind = parse_manifest(read_manifest(Path(folder)))["class"]
        except ModelFormatError as error:
            raise ModelFormatError(f"{folder}: {error}") from None
        if kind != Tagger.__name__:
            raise InvalidInputError(f"{folder} holds a {kind}, which takes features, not texts; serve a tagger.")
        named[name] = folder
    return named


def _require_free(host: str, port: int) -> None:
    """Refuse an address that cannot be bound to, before models are loaded."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)
        reason = reason.partition(" (while")[0].lower()
        raise InvalidInputError(
            f"--host and --port: cannot bind to {host}, port {port}: {reason}; choose another."
        ) from None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
