"""Survey planning: the best channels for a purpose, their expected errors, and the people needed.

The package is callable, so that `masquerade.plan(...)` is the function even after this package was imported.
"""

import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.plan.central import central_epsilon as central_epsilon
    from masquerade.plan.enough import VisiblePairs as VisiblePairs
    from masquerade.plan.enough import visible_pairs as visible_pairs
    from masquerade.plan.expected_errors import ExpectedError as ExpectedError
    from masquerade.plan.expected_errors import expected_errors as expected_errors
    from masquerade.plan.planner import plan as plan
    from masquerade.plan.priors import expected_shares as expected_shares
    from masquerade.plan.questions import tables_of as tables_of
    from masquerade.plan.result import Plan as Plan
    from masquerade.plan.split import best_split as best_split

__getattr__, __dir__, __all__ = lazy_exports(__name__)


class _Callable(ModuleType):
    """A package that can be called like the function of the same name."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Return the plan; see `masquerade.plan.planner.plan`."""
        from masquerade.plan.planner import plan  # noqa: PLC0415  (loads SciPy)

        return plan(*args, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        """Return the parameters of the function."""
        from masquerade.plan.planner import plan  # noqa: PLC0415  (loads SciPy)

        return inspect.signature(plan)


sys.modules[__name__].__class__ = _Callable
