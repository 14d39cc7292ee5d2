"""Work on several columns or batches at once: Arrow and our compiled loops let other threads run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

FEW = 1 << 16  # rows below which a second thread costs more than it saves

T = TypeVar("T")
R = TypeVar("R")


def on_all_cores(function: Callable[[T], R], items: Iterable[T], *, rows: int) -> list[R]:
    """Return the function of every item, in their order; the first that fails in this order is raised."""
    work = list(items)
    threads = min(os.cpu_count() or 1, len(work))
    if rows < FEW or threads < 2:
        return [function(item) for item in work]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, work))


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield items while the next one is made by another thread; what fails there is raised here."""
    end = object()
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, items, end)
        while (item := following.result()) is not end:
            following = pool.submit(next, items, end)
            yield item  # type: ignore[misc]  # what is not the end is an item
