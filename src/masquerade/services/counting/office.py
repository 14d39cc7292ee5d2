"""The enrolment office: it identifies people, and fixes the list of people who are counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from masquerade.core.errors import FileError, InputError
from masquerade.core.guarantee import Guarantee
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.json_text import parse_json, read_text
from masquerade.crypto.keys import AgreementKey, SigningKey
from masquerade.protocols.frequency_mining.guarantee import frequency_guarantee
from masquerade.protocols.frequency_mining.messages import FrequencyTerms
from masquerade.protocols.k_anonymity.suppression.messages import PartitionTerms
from masquerade.protocols.mixnet.opened_records import mix_guarantee
from masquerade.protocols.people.roster import check_person_names
from masquerade.protocols.secure_aggregation.agreement import AggregationTerms
from masquerade.protocols.secure_aggregation.guarantee import aggregation_guarantee
from masquerade.services.common.client import HttpTransport, once_started
from masquerade.services.common.peers import Peer
from masquerade.services.counting.person_file import ENDING, Admission, PersonFile
from masquerade.services.counting.settings import CountDescription, CountOfficeSettings
from masquerade.services.counting.suppression_batch import suppression_guarantee

ROSTER, ADMISSION = "roster.json", "admission.json"
_MINER, _RANDOMNESS = "the miner", "the randomness server"
_MOST_JSON = 1 << 26
_TOGETHER = 256  # people who are added to the roster by one write


def enrol(
    people: Sequence[str],
    settings: CountOfficeSettings,
    folder: str | Path,
    *,
    wait: float = 10.0,
    tell: Callable[[str], object] = lambda _: None,
) -> dict[str, Path]:
    """Send the list of people to the miner and every leader; return the path of each person's file.

    The folder gets one file per person, to be handed to the person, and two public files: `roster.json` with
    all public keys, and `admission.json`. People whose public key is in the roster already keep their file.
    The function waits up to `wait` seconds for servers that are starting. After a failure, call it again with
    the same people.
    """
    check_person_names(people)
    out, description = Path(folder), settings.description()
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    roster = _load_roster(out / ROSTER)
    files = {person: out / f"{person}{ENDING}" for person in people}
    _make_files(files, roster, out / ROSTER)
    peers = _servers(settings, description)
    with HttpTransport(settings.name, peers, tls=settings.tls.files()) as http:
        boxes = _boxes(http, description, wait, tell)
        terms = description.terms({person: roster[person] for person in people}, boxes)
        for peer in [*peers[1:], peers[0]]:
            handing = partial(http.exchange, peer.name, terms.encode(), place="enrol")
            if once_started(handing, peer.name, wait, tell) != terms.digest:
                raise InputError(f"{peer.name} confirmed different terms from those it received.")
    authority = settings.tls.authority
    pem = "" if authority is None else authority.read_text(encoding="ascii")
    admission = Admission(
        description.name, settings.miner.url or "", settings.miner.fingerprints, pem, terms.digest.hex()
    )
    write_whole(out / ADMISSION, admission.to_json())
    for file in files.values():
        if file.is_file():  # people who have already received their file get the public file instead
            person_file = PersonFile(file)
            person_file.admit(admission)
            person_file.close()
    return files


def _make_files(files: Mapping[str, Path], roster: dict[str, bytes], place: Path) -> None:
    """Create the files of people who are not in the roster yet, and add their public keys to it.

    The roster is written once for many people: a file per person would take time quadratic in their number.
    """
    new = [person for person in files if person not in roster]
    for first in range(0, len(new), _TOGETHER):
        try:
            for person in new[first : first + _TOGETHER]:
                roster[person] = _identity_of(files[person], person)
        finally:
            lines = ",\n ".join(f'"{name}": "{key.hex()}"' for name, key in roster.items())
            write_whole(place, "{" + lines + "}\n")


def _identity_of(file: Path, person: str) -> bytes:
    """Return the public key in a person's file; create the file unless an interrupted call has made it."""
    if not file.exists():
        return PersonFile.make(file, person)
    person_file = PersonFile(file)
    try:
        if person_file.name != person:
            raise FileError(f"{file}: is the file of another person.")
        return person_file.identity.public
    finally:
        person_file.close()


def plan_guarantee(description: CountDescription, people: int) -> Guarantee:
    """Return the guarantee that a count with this number of people would have.

    People and keys are invented; the guarantee depends on neither.
    """
    policy = description.load_policy()
    members = {f"person {number}": SigningKey().public for number in range(1, people + 1)}
    terms = description.terms(members, (AgreementKey().public, AgreementKey().public))
    agreed = terms.protocol_terms(policy)
    if isinstance(agreed, FrequencyTerms):
        return frequency_guarantee(agreed, people, shared_checks=False)
    if isinstance(agreed, AggregationTerms):
        return aggregation_guarantee(agreed)
    if isinstance(agreed, PartitionTerms):
        return suppression_guarantee(agreed)
    return mix_guarantee(agreed, policy, people)


def _servers(settings: CountOfficeSettings, description: CountDescription) -> list[Peer]:
    """Return all servers of a count, the miner first; raise InputError if they are not those described."""
    if set(settings.leaders) != set(description.leaders):
        raise InputError("The leaders in the office's settings differ from the description of the count.")
    if (settings.randomness is None) != (description.randomness is None):
        raise InputError(
            "Either both the office's settings and the count have a randomness server, or neither."
        )
    peers = [settings.miner.peer(_MINER)]
    peers += [peer.peer(name) for name, peer in settings.leaders.items()]
    return peers if settings.randomness is None else [*peers, settings.randomness.peer(_RANDOMNESS)]


def _boxes(
    http: HttpTransport, description: CountDescription, wait: float, tell: Callable[[str], object]
) -> tuple[bytes, bytes] | None:
    """Return the keys for which reports of a suppression are sealed; None for other protocols.

    The miner and the first key holder show them, and refuse terms that state other keys.
    """
    if description.randomness is None:
        return None
    boxes = [
        once_started(partial(http.exchange, name, b"", place="box"), name, wait, tell)
        for name in (_MINER, next(iter(description.leaders)))
    ]
    return boxes[0], boxes[1]


def _load_roster(roster: Path) -> dict[str, bytes]:
    """Load the public keys of people who have a file already."""
    if not roster.exists():
        return {}
    try:
        values = parse_json(read_text(roster, most=_MOST_JSON))
        return {str(name): bytes.fromhex(key) for name, key in values.items()}
    except FileError:
        raise
    except (InputError, AttributeError, TypeError, ValueError):
        raise FileError(f"{roster}: is not a list of people's public keys.") from None
