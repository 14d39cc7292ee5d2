"""Parallel work on columns or batches, in threads: Arrow and compiled loops release the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

FEW = 1 << 16  # rows below which a second thread costs more than it saves

T = TypeVar("T")
R = TypeVar("R")


def on_all_cores(function: Callable[[T], R], items: Iterable[T], *, rows: int) -> list[R]:
    """Apply a function to every item; return the results in order, or raise the first error in this order."""
    work = list(items)
    threads = min(os.cpu_count() or 1, len(work))
    if rows < FEW or threads < 2:
        return [function(item) for item in work]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, work))


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield items while another thread prepares the next item; errors of that thread are raised here."""
    end = object()
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, items, end)
        while (item := following.result()) is not end:
            following = pool.submit(next, items, end)
            yield item  # type: ignore[misc]  # anything but `end` is an item
