"""An HTTP server for taggers: suggestions, feedback, live swap of models. Needs the extra ``tagwise[server]``."""

from tagwise.serving.annif import uri_of
from tagwise.serving.app import create_app
from tagwise.serving.options import ServingOptions

__all__ = ["ServingOptions", "create_app", "uri_of"]
