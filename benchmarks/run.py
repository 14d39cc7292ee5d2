"""Run every benchmark, one after the other, and keep the results beside the scripts.

python -m benchmarks.run
"""

import subprocess
import sys
from pathlib import Path

NAMES = (
    "disguise_codes",
    "count_tables",
    "estimate_counts",
    "encode_labels",
    "frames",
    "disguise_file",
    "files",
    "parameters_alarm",
    "likelihood_fits",
    "regression_speed",
    "interval_coverage",
    "structure_alarm",
    "naive_bayes",
    "tree",
    "itemsets",
    "anonymity",
    "engine_overhead",
    "frequency",
    "aggregation",
    "threshold",
    "plans",
    "person_limit",
    "plan_tree",
    "prefix_sums",
    "policy_categories",
    "commands",
    "parties",
    "parties_network",
    "party_memory",
    "hidden",
    "hidden_engines",
    "sessions",
    "linking",
    "people",
    "gather",
    "studio",
    "growth",
    "growing",
    "spark_structure",
)


def main():
    kept = Path(__file__).parent / "results"
    kept.mkdir(exist_ok=True)
    for name in NAMES:
        print(f"\n== {name}", flush=True)
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            f"benchmarks.{name}",
            "--json",
            str(kept / f"{name}.json"),
        ]
        subprocess.run(command, check=True)  # noqa: S603


if __name__ == "__main__":
    main()
