"""``/api/v1``: all that the pages show, as JSON, with the OpenAPI document; and ``/metrics``."""
