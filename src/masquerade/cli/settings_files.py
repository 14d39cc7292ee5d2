"""Settings files: recognise the service that a file is for, and check the files that it names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from masquerade.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pydantic import BaseModel


def load_settings(file: Path, kind: str) -> Any:
    """Load the settings of a service, and check every file that they name."""
    from masquerade.services.common.settings import check_files  # noqa: PLC0415
    from masquerade.services.parties.settings import PartySettings  # noqa: PLC0415

    settings = read_settings(file, kind)
    check_files(settings, file)
    if isinstance(settings, PartySettings):
        from masquerade.services.parties.local_data import check_records  # noqa: PLC0415  (loads Arrow)

        check_records(settings)
    return settings


def read_settings(file: Path, kind: str) -> Any:
    """Read the settings of a service; for a file of another type, the error message names its type."""
    from masquerade.services.common.settings import load  # noqa: PLC0415

    try:
        return load(file, settings_types()[kind])
    except InputError:
        other = recognise_type(file)
        if other == kind:
            raise
        raise InputError(f"{file}: this is a file of type {other!r}, not {kind!r}.") from None


def recognise_type(file: Path) -> str:
    """Return the type of settings whose keys best match the keys of a file."""
    from masquerade.services.common.settings_file import read  # noqa: PLC0415

    keys = set(read(file))

    def likeness(item: tuple[str, type[BaseModel]]) -> int:
        fields = item[1].model_fields
        needed = {name for name, field in fields.items() if field.is_required()}
        return len(keys & fields.keys()) - len(keys - fields.keys()) - len(needed - keys)

    return max(settings_types().items(), key=likeness)[0]


def settings_types() -> Mapping[str, type[BaseModel]]:
    """Return the types of settings files and their models."""
    from masquerade.services.counting.settings import KINDS as COUNTING  # noqa: PLC0415
    from masquerade.services.parties.session import SessionSpec  # noqa: PLC0415
    from masquerade.services.parties.settings import KINDS as PARTIES  # noqa: PLC0415
    from masquerade.services.threshold.settings import KINDS as COLLECTING  # noqa: PLC0415  (loads pydantic)
    from masquerade.survey.collector.settings import KINDS as SURVEYS  # noqa: PLC0415

    return {**PARTIES, "session": SessionSpec, **COLLECTING, **COUNTING, **SURVEYS}


def rules_of_consents(settings: Any) -> tuple[dict[str, str], list[str]]:
    """Return the full rules of each consent, and warnings about consents to exact counts without rules.

    Parameters
    ----------
    settings : BaseModel
        Settings of any type; only the settings of a party have consents with rules.

    Returns
    -------
    dict
        Rules by session, as one line of JSON, which is YAML too.
    list of str
        A sentence per consent that states no rules although the session has exact results.
    """
    from masquerade.services.parties.settings import PartySettings  # noqa: PLC0415  (loads pydantic)

    if not isinstance(settings, PartySettings):
        return {}, []
    from masquerade.channels.policy import Policy  # noqa: PLC0415  (loads numpy)
    from masquerade.services.parties.kinds import find  # noqa: PLC0415

    policy = Policy.load(settings.data.policy)
    rules = {
        it.session: json.dumps(it.rules.rules().to_dict(), ensure_ascii=False)
        for it in settings.consents
        if it.rules is not None
    }
    warnings = [
        f"the consent to session {it.session!r} states no rules, and its counts are exact: differences of "
        "counts can show single people. State rules, such as rules: {profile: datashield}."
        for it in settings.consents
        if it.rules is None
        and it.noise is None
        and find(it.protocol).exact(policy)
        and find(it.protocol).rules_problem(it) is None
    ]
    return rules, warnings
