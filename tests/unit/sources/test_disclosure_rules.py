"""Disclosure rules that stewards know: profiles, thresholds, sets of any shape, and histories of records."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, QueryRefused
from masquerade.protocols.people.ledger import FileLedger, MemoryLedger
from masquerade.sources.control.output_check import check_output

Q = mq.Query
K5 = mq.Rules(most_variables=9, data_dependent=mq.DataDependentRules(5))


def codes(source, *queries):
    return [refusal.code for refusal in source.check(queries)]


def rows(counts, names):
    return pd.DataFrame([key for key, n in counts.items() for _ in range(n)], columns=list(names))


@pytest.fixture
def patients():
    rng, n = np.random.default_rng(1), 200
    return pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], n),
            "town": rng.choice(["a", "b", "c"], n),
            "hiv": rng.choice(["no", "yes"], n, p=[0.9, 0.1]),
            "target": np.where(np.arange(n) == 7, "him", "others"),
        }
    )


class TestReplays:
    """Attacks that users of another system reported: a count with and without one person."""

    @pytest.mark.parametrize(
        "rules",
        [
            mq.Rules(most_variables=1),
            mq.Rules(protect=[["hiv", "target"]]),
            mq.Rules.profile("datashield"),
            mq.Rules.profile("acro"),
            mq.Rules.profile("cms11"),
        ],
    )
    def test_one_row_removed_by_a_condition_is_refused(self, patients, rules):
        source = mq.Controlled(mq.tally(patients), rules)
        source.answer([Q(by="hiv")])
        with pytest.raises(QueryRefused):
            source.answer([Q(by="hiv", where={"target": "others"})])

    def test_controlled_without_rules_is_refused(self, patients):
        with pytest.raises(InputError, match="must stay undetermined"):
            mq.Controlled(mq.tally(patients))
        assert codes(mq.Controlled(mq.tally(patients), mq.Rules.none()), Q(by=tuple(patients))) == []

    @pytest.mark.parametrize("engine", ["memory", "duckdb"])
    @pytest.mark.parametrize(
        "change", [lambda d: pd.concat([d, d.iloc[[7]]]), lambda d: d.drop(index=7)], ids=["twice", "gone"]
    )
    def test_a_row_twice_or_gone_under_one_history_is_refused(self, patients, change, engine, tmp_path):
        clear = patients.drop(columns="target")
        ledger, schema = FileLedger(tmp_path / "history"), mq.tally(clear).schema

        def source(frame):
            frame.to_parquet(tmp_path / "people.parquet", index=False)
            return mq.tally(tmp_path / "people.parquet", schema=schema, engine=engine)

        mq.Controlled(source(clear), K5, ledger).answer([Q(by="hiv")])
        other = source(change(clear))
        assert codes(mq.Controlled(other, K5, ledger), Q(by="hiv")) == ["other_people"]
        with pytest.raises(QueryRefused, match="different records"):
            mq.Controlled(other, K5, ledger).answer([Q(by="hiv")])
        assert codes(mq.Controlled(other, K5, ledger, other_people=True), Q(by="hiv")) == []
        shuffled = clear.sample(frac=1, random_state=2)[["town", "hiv", "sex"]]
        assert codes(mq.Controlled(source(shuffled), K5, ledger), Q(by="hiv")) == []
        ledger.close()

    def test_differencing_of_two_large_counts_is_refused(self, patients):
        source = mq.Controlled(mq.tally(patients.drop(columns="target")), mq.Rules.profile("acro"))
        source.answer([Q(where={"town": "a"})])
        assert codes(source, Q(where={"town": "a", "hiv": "no"})) == ["too_few_people"]

    def test_a_missing_cell_below_the_threshold_is_refused(self):
        frame = pd.DataFrame(
            {"g": ["a"] * 20 + ["b"] * 21, "h": (["x"] * 10 + ["y"] * 10) * 2 + ["not stated"]}
        )
        source = mq.Controlled(mq.tally(frame), mq.Rules.profile("datashield"))
        assert codes(source, Q(by=("g", "h"))) == ["too_few_people"]


class TestBinding:
    def test_keys_name_the_people_whatever_the_columns(self, patients):
        ledger, keys = MemoryLedger(), range(200)
        mq.Controlled(mq.tally(patients[["hiv"]]), K5, ledger, keys=keys).answer([Q(by="hiv")])
        more = mq.tally(patients[["hiv", "sex"]])
        assert codes(mq.Controlled(more, K5, ledger, keys=keys), Q(by="sex")) == []
        assert codes(mq.Controlled(more, K5, ledger, keys=range(1, 201)), Q(by="sex")) == ["other_people"]
        assert codes(mq.Controlled(more, K5, ledger), Q(by="sex")) == ["other_people"]

    def test_checking_binds_nothing_and_accepted_others_are_known(self, patients):
        ledger, first, second = MemoryLedger(), patients[["hiv"]], patients[["hiv"]][:150]
        schema = mq.tally(first).schema
        sources = [mq.tally(frame, schema=schema) for frame in (first, second)]
        mq.Controlled(sources[0], K5, ledger).check([Q(by="hiv")])
        mq.Controlled(sources[1], K5, ledger).answer([Q(by="hiv")])
        assert codes(mq.Controlled(sources[0], K5, ledger), Q()) == ["other_people"]
        mq.Controlled(sources[0], K5, ledger, other_people=True).answer([Q()])
        assert codes(mq.Controlled(sources[0], K5, ledger), Q()) == []

    def test_a_history_does_not_contain_a_plain_digest(self, patients):
        ledgers = [MemoryLedger(), MemoryLedger()]
        for ledger in ledgers:
            mq.Controlled(mq.Cached(mq.tally(patients)), K5, ledger).answer([Q()])
        bound = [ledger.values("records of a history")[0] for ledger in ledgers]
        assert len(bound[0]) == 64
        assert bound[0][32:] != bound[1][32:]


class TestThresholds:
    @pytest.mark.parametrize(("few", "refused"), [(2, True), (3, False), (4, False)])
    def test_least_people(self, few, refused):
        frame = rows({("a",): few, ("b",): 40}, "g")
        rules = mq.Rules(most_variables=9, data_dependent=mq.DataDependentRules(3))
        assert codes(mq.Controlled(mq.tally(frame), rules), Q(by="g")) == ["too_few_people"] * refused

    @pytest.mark.parametrize("shown", [False, True])
    def test_empty_cells(self, shown):
        source = mq.tally(rows({("a",): 40}, "g"), schema=mq.Schema({"g": ["a", "b"]}))
        rules = mq.Rules(most_variables=9, data_dependent=mq.DataDependentRules(3, show_empty=shown))
        assert codes(mq.Controlled(source, rules), Q(by="g")) == ["too_few_people"] * (not shown)

    @pytest.mark.parametrize(("n", "refused"), [(12, True), (13, False), (14, False)])
    def test_least_dof(self, n, refused):
        frame = pd.DataFrame({"g": list("abcd") * 3 + ["a"] * (n - 12)})  # three parameters
        source = mq.Controlled(mq.tally(frame), mq.Rules(most_variables=9, least_dof=10))
        assert codes(source, Q(by="g")) == ["too_many_parameters"] * refused
        assert codes(source, Q()) == []

    @pytest.mark.parametrize(("n", "refused"), [(11, True), (12, False), (13, False)])
    def test_most_parameters(self, n, refused):
        frame = pd.DataFrame({"g": (list("abcd") * 4)[:n]})
        source = mq.Controlled(mq.tally(frame), mq.Rules(most_variables=9, most_parameters=0.25))
        assert codes(source, Q(by="g")) == ["too_many_parameters"] * refused

    @pytest.mark.parametrize(("size", "refused"), [(39, False), (40, False), (41, True)])
    def test_most_categories(self, size, refused):
        frame = pd.DataFrame({"g": list(range(size)) * 5})
        rules = mq.Rules(most_variables=9, most_categories=mq.MostCategories(share=0.33, most=40))
        assert codes(mq.Controlled(mq.tally(frame), rules), Q(by="g")) == ["too_many_categories"] * refused
        assert [mq.MostCategories(share=0.33).limit(n) for n in (8, 9, 10)] == [2, 2, 3]

    def test_p_and_nk_at_their_thresholds(self):
        assert [mq.Dominance(n=2, k=0.9).failures([60, x, 40 - x]) for x in (29, 30, 31)] == [(), (), ("nk",)]
        assert [mq.Dominance(p=0.1).failures([100, 50, x]) for x in (9, 10, 11)] == [("p",), (), ()]
        assert mq.Dominance(p=0.1).failures([100, 50], total=160) == ()

    def test_dominance_is_refused_where_only_counts_are_held(self, patients):
        with pytest.raises(InputError, match="contributions to sums"):
            mq.Controlled(mq.tally(patients), mq.Rules(dominance=mq.Dominance(p=0.1)))


class TestProfiles:
    def test_profiles_expand_visibly_and_keys_override(self):
        assert mq.Rules.profile("acro", magnitudes=True).to_dict() == {
            "data_dependent": {"least_people": 10, "show_empty": False, "least_width": 0},
            "least_dof": 10,
            "dominance": {"n": 2, "k": 0.9, "p": 0.1},
        }
        assert "dominance" not in mq.Rules.profile("acro").to_dict()
        changed = mq.Rules.profile("datashield", data_dependent={"least_people": 7}, most_parameters=None)
        assert changed.to_dict() == {
            "data_dependent": {"least_people": 7, "show_empty": True, "least_width": 0},
            "most_categories": {"share": 0.33, "most": 40},
        }
        for rules in (changed, mq.Rules(protect=[["a", "b"]], least_dof=1000), mq.Rules(most_variables=2)):
            assert mq.Rules.from_dict(rules.to_dict()) == rules

    def test_wrong_keys_are_refused(self):
        for keys in (
            {"profile": "acor"},
            {"least_dofs": 3},
            {"least_dof": 0},
            {"most_parameters": 1.5},
            {"dominance": {"n": 2}},
            {"data_dependent": {"least": 3}},
            {"most_categories": {"most": 0}},
        ):
            with pytest.raises(InputError):
                mq.Rules.from_dict(keys)


class TestSets:
    def test_what_two_disjoint_cells_leave_is_a_set(self):
        counts = {(0, 1, 0): 50, (1, 0, 1): 24, (1, 1, 1): 24, (0, 0, 0): 1, (1, 0, 0): 1}
        source = mq.Controlled(mq.tally(rows(counts, "bac")), K5)
        source.answer([Q(where={"b": 0, "a": 1})])
        assert codes(source, Q(where={"b": 1, "c": 1})) == ["too_few_people"]  # 100 - 50 - 48

    def test_two_of_four_categories_are_a_set(self):
        counts = {(1, 0): 1, (1, 3): 1, (1, 1): 20, (1, 2): 12, **{(0, b): 20 for b in range(4)}}
        source = mq.Controlled(mq.tally(rows(counts, "ab")), K5)
        source.answer([Q(by="a"), Q(where={"a": 1, "b": 1})])
        assert codes(source, Q(where={"a": 1, "b": 2})) == ["too_few_people"]
        assert codes(source, Q(where={"a": 0, "b": 2})) == []

    @pytest.mark.parametrize("seed", range(24))
    def test_no_accepted_sequence_of_tables_has_a_small_set_in_its_span(self, seed):
        """Every subset of the finest cells is tried, by brute force."""
        rng = np.random.default_rng([seed, 40])
        sizes = [(2, 2, 2), (3, 4), (2, 2, 3), (4, 2), (2, 5)][rng.integers(5)]
        names, least, shown = "abc"[: len(sizes)], int(rng.integers(2, 6)), bool(rng.integers(2))
        atoms = np.array(list(product(*map(range, sizes))))
        counts = rng.poisson(rng.choice([0.5, 3, 12], len(atoms)))
        frame = pd.DataFrame(np.repeat(atoms, counts, axis=0), columns=list(names))
        schema = mq.Schema({name: list(range(size)) for name, size in zip(names, sizes, strict=True)})
        rules = mq.Rules(most_variables=9, data_dependent=mq.DataDependentRules(least, show_empty=shown))
        source = mq.Controlled(mq.tally(frame, schema=schema), rules)
        known = [np.ones(len(atoms))]
        for _ in range(6):
            by = [name for name in names if rng.random() < 0.4]
            left = [name for name in names if name not in by and rng.random() < 0.6]
            query = Q(by=by, where={name: int(rng.integers(sizes[names.index(name)])) for name in left})
            if source.check([query]):
                continue
            source.answer([query])
            for cell in product(*[range(sizes[names.index(name)]) for name in by]):
                fixed = {**dict(query.where), **dict(zip(by, cell, strict=True))}
                known.append(np.all([atoms[:, names.index(k)] == v for k, v in fixed.items()] or [[1]], 0))
        _, values, right = np.linalg.svd(np.array([np.broadcast_to(it, len(atoms)) for it in known], float))
        outside = right[int(np.sum(values > 1e-9)) :]
        sets = np.array(list(product((0, 1), repeat=len(atoms))))[1:-1]
        people = sets @ counts
        determined = np.abs(sets @ outside.T).max(axis=1, initial=0) < 1e-9
        assert not np.any(determined & (people < least) & ((people > 0) | (not shown)))


def table(by, cells, n=100, where=None, **more):
    listed = [{"labels": dict(zip(by, labels, strict=True)), "count": c, **more} for labels, c in cells]
    return {"by": list(by), "where": where or {}, "n": n, "cells": listed}


class TestOutputs:
    ACRO = mq.Rules.profile("acro", magnitudes=True)

    @pytest.mark.parametrize(("count", "status"), [(9, "fail"), (10, "pass"), (11, "pass")])
    def test_threshold_of_a_cell(self, count, status):
        found = check_output(table("g", [("a", count), ("b", 100 - count)]), self.ACRO)
        assert found.status == status
        assert found.cells == ((("threshold",) if status == "fail" else ()), ())

    def test_zero_and_group(self):
        found = check_output(
            table("gh", [("ax", 40), ("ay", 0), ("bx", 30), ("by", 30)]), mq.Rules.profile("acro")
        )
        assert found.status == "fail"
        assert found.cells == (("group",), ("zero",), (), ("group",))
        shown = mq.Rules.profile("acro", data_dependent={"show_empty": True})
        assert check_output(table("g", [("a", 0), ("b", 100)]), shown).status == "pass"

    @pytest.mark.parametrize(("parts", "marks"), [([60, 30, 10], ()), ([60, 31, 9], ("nk",))])
    def test_sums_with_contributions(self, parts, marks):
        found = check_output(table("", [((), 100)], contributions=parts, total=100), self.ACRO)
        assert found.cells == (marks,)
        assert found.status == ("fail" if marks else "pass")

    @pytest.mark.parametrize(("n", "status"), [(14, "fail"), (15, "pass"), (16, "pass")])
    def test_models(self, n, status):
        assert check_output({"type": "model", "n": n, "parameters": 5}, self.ACRO).status == status
        assert check_output({"type": "model"}, self.ACRO).status == "review"
        assert check_output({"type": "plot"}, self.ACRO).status == "review"
        assert check_output({"type": "model", "n": n, "parameters": 5}, K5).status == "review"

    def test_differences_of_published_tables(self):
        first, second = table("g", [("a", 50), ("b", 50)]), table("", [((), 48)], where={"g": "a", "h": "no"})
        assert check_output(second, self.ACRO).status == "pass"
        assert check_output(second, self.ACRO, [first]).status == "fail"
        apart = table("", [((), 20)], where={"g": "a", "h": "no"})
        assert check_output(apart, self.ACRO, [first]).status == "pass"
        assert check_output(table("g", [("a", 50), ("b", 51)], n=101), self.ACRO, [first]).status == "review"

    def test_estimates_from_disguised_records(self):
        values = table("g", [("a", -1.5), ("b", 101.5)])
        assert check_output(values, self.ACRO).status == "review"
        assert check_output({**values, "gamma": "19"}, self.ACRO).status == "pass"
