"""A package that is not installed: which extra of masquerade brings it."""

from __future__ import annotations

from typing import Final

SERVICES: Final = "services"
# modules that extras bring, by the extra that everybody else than a service needs them for
EXTRAS: Final = {
    "coincurve": "crypto",
    "fastapi": SERVICES,
    "formulaic": "stats",
    "gmpy2": SERVICES,
    "httpx": SERVICES,
    "ibis": "postgres",
    "mpyc": "mpyc",
    "onnx": "onnx",
    "openpyxl": "files",
    "polars": "polars",
    "prometheus_client": SERVICES,
    "psycopg": "postgres",
    "pyagrum": "inference",
    "pyreadstat": "files",
    "pyspark": "spark",
    "rbcl": "crypto",
    "sklearn": "sklearn",
    "starlette": SERVICES,
    "uvicorn": SERVICES,
}


def missing_package(error: ImportError) -> str | None:
    """Say how to install what an import did not find; None if no extra brings it: that is a bug of ours."""
    name, served = "", False
    step: BaseException | None = error
    while step is not None:
        if isinstance(step, ModuleNotFoundError) and step.name:
            name = step.name.partition(".")[0]
        served = served or _served(step)
        step = step.__cause__ or step.__context__
    if name not in EXTRAS:
        return None
    # a service needs its whole extra, of which this was only the first package that was looked for
    extra = SERVICES if served and EXTRAS[name] == "crypto" else EXTRAS[name]
    what = "Services need packages that are" if extra == SERVICES else f"This needs {name}, which is"
    return f"{what} not installed: pip install 'masquerade[{extra}]'"


def _served(error: BaseException) -> bool:
    """Tell whether an error passed through a module of services."""
    step = error.__traceback__
    while step is not None:
        if str(step.tb_frame.f_globals.get("__name__", "")).startswith("masquerade.services"):
            return True
        step = step.tb_next
    return False
