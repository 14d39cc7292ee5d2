"""The studio: seven screens in a local browser that run the commands and store a project folder."""

from typing import TYPE_CHECKING

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.studio.project import Project as Project
    from masquerade.studio.server import Studio as Studio

__getattr__, __dir__, __all__ = lazy_exports(__name__)
