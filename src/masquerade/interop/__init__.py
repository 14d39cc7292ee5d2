"""Files for other tools: releases, tables, networks and classifiers, written and, where useful, read.

No other part of the package imports this one. Input is untrusted: it is read within limits, and every problem
raises `InputError`.
"""

from typing import TYPE_CHECKING

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.frames.ddi import Wording as Wording
    from masquerade.frames.ddi import codebook as codebook
    from masquerade.interop.croissant_description import About as About
    from masquerade.interop.croissant_description import croissant as croissant
    from masquerade.interop.dap import DapSums as DapSums
    from masquerade.interop.dap import dap_cell as dap_cell
    from masquerade.interop.dap import dap_sums as dap_sums
    from masquerade.interop.dap import from_dap as from_dap
    from masquerade.interop.dap import read_dap as read_dap
    from masquerade.interop.dap import to_dap as to_dap
    from masquerade.interop.onnx_classifier import to_onnx as to_onnx
    from masquerade.interop.onnx_classifier import write_onnx as write_onnx
    from masquerade.interop.opendp import from_opendp as from_opendp
    from masquerade.interop.opendp import to_opendp as to_opendp
    from masquerade.interop.pram import from_pram as from_pram
    from masquerade.interop.pram import read_pram as read_pram
    from masquerade.interop.pram import to_pram as to_pram
    from masquerade.interop.release_folder import ReleaseFolder as ReleaseFolder
    from masquerade.interop.release_folder import check_release as check_release
    from masquerade.interop.release_folder import write_release as write_release
    from masquerade.interop.sdmx import to_sdmx_csv as to_sdmx_csv
    from masquerade.interop.sdmx import to_sdmx_structure as to_sdmx_structure
    from masquerade.learn.networks.files.uai import from_uai as from_uai
    from masquerade.learn.networks.files.uai import read_uai as read_uai
    from masquerade.learn.networks.files.uai import to_uai as to_uai
    from masquerade.learn.networks.files.uai import write_uai as write_uai
    from masquerade.learn.networks.files.xmlbif import from_xmlbif as from_xmlbif
    from masquerade.learn.networks.files.xmlbif import read_xmlbif as read_xmlbif
    from masquerade.learn.networks.files.xmlbif import to_xmlbif as to_xmlbif
    from masquerade.learn.networks.files.xmlbif import write_xmlbif as write_xmlbif

__getattr__, __dir__, __all__ = lazy_exports(__name__)
