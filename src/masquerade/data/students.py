"""Six hundred synthetic students: the survey of the tutorial, with exact shares."""

from __future__ import annotations

from functools import cache

import pandas as pd

from masquerade.channels.policy import Policy

# number of students by exams and year: with and without pills, each with bad and good sleep
_COUNTS = {
    ("few", 1): (("yes", 8, 4), ("no", 27, 81)),
    ("few", 2): (("yes", 8, 4), ("no", 22, 66)),
    ("few", 3): (("yes", 8, 4), ("no", 17, 51)),
    ("many", 1): (("yes", 13, 7), ("no", 15, 45)),
    ("many", 2): (("yes", 20, 10), ("no", 17, 53)),
    ("many", 3): (("yes", 27, 13), ("no", 20, 60)),
}


def students() -> pd.DataFrame:
    """Return the clear records of 600 synthetic students: exams, year, pills and sleep.

    12% of the students with few exams and 30% of those with many exams take pills to study. Of the students
    who take pills, 2 in 3 sleep badly; of the others, 1 in 4. The shares are exact: nothing is random.

    Returns
    -------
    pandas.DataFrame
        One row per student.

    Examples
    --------
    >>> mq.data.students().groupby("exams")["pills"].value_counts().to_dict()
    {('few', 'no'): 264, ('few', 'yes'): 36, ('many', 'no'): 210, ('many', 'yes'): 90}
    """
    return _students().copy()


@cache
def _students() -> pd.DataFrame:
    rows = [
        (exams, year, pills, sleep)
        for (exams, year), groups in _COUNTS.items()
        for pills, bad, good in groups
        for sleep, people in (("bad", bad), ("good", good))
        for _ in range(people)
    ]
    return pd.DataFrame(rows, columns=["exams", "year", "pills", "sleep"])


@cache
def students_policy() -> Policy:
    """Return a policy for the students: pills and sleep are disguised, exams and year are clear.

    Returns
    -------
    Policy
        The policy.

    Examples
    --------
    >>> {name: float(mq.data.students_policy().group(name).channel.gamma) for name in ("pills", "sleep")}
    {'pills': 3.0, 'sleep': 4.0}
    """
    return Policy.from_dict(
        {
            "masquerade": 1,
            "title": "Exams, pills and sleep",
            "limit": {"breach": "5%:50%"},
            "clear": "accepted",
            "variables": {
                "exams": {"categories": ["few", "many"]},
                "year": {"categories": [1, 2, 3]},
                "pills": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": "0.25"}},
                "sleep": {"categories": ["bad", "good"], "channel": {"kind": "binary", "p": "0.2"}},
            },
        }
    )
