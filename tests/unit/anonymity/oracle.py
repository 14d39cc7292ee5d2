"""The fewest stars, by trying every partition; tables with few rows only."""

from itertools import combinations


def fewest_stars(codes, k):
    """Return the stars of the best partition into groups of k to 2k − 1 rows; larger ones need no fewer."""
    rows = len(codes)
    starting = {row: [] for row in range(rows)}
    for size in range(k, min(2 * k - 1, rows) + 1):
        for members in combinations(range(rows), size):
            own = codes[list(members)]
            cost = size * int((own != own[0]).any(axis=0).sum())
            starting[members[0]].append((sum(1 << row for row in members), cost))
    everybody = (1 << rows) - 1
    best = [float("inf")] * everybody + [0]
    for placed in range(everybody - 1, -1, -1):
        first = next(row for row in range(rows) if not placed >> row & 1)
        for group, cost in starting[first]:
            if not group & placed:
                best[placed] = min(best[placed], best[placed | group] + cost)
    return best[0]
