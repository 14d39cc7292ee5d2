"""The tables: their files, columns, counts by which they are recognised, and citations."""

from __future__ import annotations

from collections.abc import Mapping

from masquerade.data.catalogue_types import UCI, DataSet, RawFile


def published(name: str, size: int, sha256: str, old: str, new: str) -> RawFile:
    """Return a file of the UCI archive: alone at its old address, in an archive at the new one."""
    return RawFile(
        name, UCI, size, sha256, (f"ml/machine-learning-databases/{old}/{name}", f"static/public/{new}.zip")
    )


ADULT_DATA = published(
    "adult.data",
    3_974_305,
    "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult",
    "2/adult",
)
ADULT_TEST = published(
    "adult.test",
    2_003_153,
    "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    "adult",
    "2/adult",
)
ADULT_COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
)
ADULT_CITATION = "Becker, B., Kohavi, R. (1996). Adult. UCI Machine Learning Repository. doi:10.24432/C5XW20"

SETS: Mapping[str, DataSet] = {
    found.name: found
    for found in (
        DataSet(
            "adult",
            "Adult (census income), the training records in the order of the file",
            (ADULT_DATA,),
            ADULT_COLUMNS,
            "income",
            32_561,
            {"<=50K": 24_720, ">50K": 7_841},
            "3b8a6abd697a6623ef2ccbffc3e2802e167e7fdaa853003d3bd557b0ce7f5d2a",
            ADULT_CITATION,
            {"workclass": 1_836, "occupation": 1_843, "native_country": 583},
        ),
        DataSet(
            "adult-test",
            "Adult (census income), the test records in the order of the file",
            (ADULT_TEST,),
            ADULT_COLUMNS,
            "income",
            16_281,
            {"<=50K": 12_435, ">50K": 3_846},
            "eb6e9f02496bed4137b1a069b8af64b90eb534ba46143948667034dddef9abd9",
            ADULT_CITATION,
            {"workclass": 963, "occupation": 966, "native_country": 274},
            note="the full stop after each label of the file is left out",
        ),
        DataSet(
            "adult-all",
            "Adult (census income), training and test records together, sorted by all columns",
            (ADULT_DATA, ADULT_TEST),
            ADULT_COLUMNS,
            "income",
            48_842,
            {"<=50K": 37_155, ">50K": 11_687},
            "35073ad21f839fabb763fce2555132f8bb2074b9b93cb3d7139d6757ea19971c",
            ADULT_CITATION,
            {"workclass": 2_799, "occupation": 2_809, "native_country": 857},
            note="sorted, so that it is the same from any source; it tells nothing of the order of the files",
        ),
        DataSet(
            "breast-cancer-wisconsin",
            "Breast cancer, University of Wisconsin Hospitals (the original set of 1992)",
            (
                published(
                    "breast-cancer-wisconsin.data",
                    19_889,
                    "402c585309c399237740f635ef9919dc512cca12cbeb20de5e563a4593f22b64",
                    "breast-cancer-wisconsin",
                    "15/breast+cancer+wisconsin+original",
                ),
            ),
            (
                "sample_code_number",
                "clump_thickness",
                "uniformity_of_cell_size",
                "uniformity_of_cell_shape",
                "marginal_adhesion",
                "single_epithelial_cell_size",
                "bare_nuclei",
                "bland_chromatin",
                "normal_nucleoli",
                "mitoses",
                "class",
            ),
            "class",
            699,
            {"2": 458, "4": 241},
            "6f11df8586fc8aa689ccb7ba9f3df8a0b9606f998cd50950fda75637ace467e1",
            "Wolberg, W. (1992). Breast Cancer Wisconsin (Original). UCI Machine Learning Repository. "
            "doi:10.24432/C5HP4Z",
            {"bare_nuclei": 16},
            note='bare_nuclei is text, since 16 of its values are "?"; class 2 is benign, 4 malignant',
        ),
        DataSet(
            "breast-cancer",
            "Breast cancer, Institute of Oncology, Ljubljana",
            (
                published(
                    "breast-cancer.data",
                    18_654,
                    "ca7d3fa97b62ff967b6894ffbb3acaaf4a51062e0149e5950b3ad6f685970b65",
                    "breast-cancer",
                    "14/breast+cancer",
                ),
            ),
            (
                "class",
                "age",
                "menopause",
                "tumor_size",
                "inv_nodes",
                "node_caps",
                "deg_malig",
                "breast",
                "breast_quad",
                "irradiat",
            ),
            "class",
            286,
            {"no-recurrence-events": 201, "recurrence-events": 85},
            "fe9041f7b486a0d6ff3ee5024349adb3ee5877e0b8eebb970ff566fa8f720d72",
            "Zwitter, M., Soklic, M. (1988). Breast Cancer. UCI Machine Learning Repository. "
            "doi:10.24432/C51P4M",
            {"node_caps": 8, "breast_quad": 1},
        ),
        DataSet(
            "mushroom",
            "Mushroom (Agaricus and Lepiota), one letter for each value",
            (
                published(
                    "agaricus-lepiota.data",
                    373_704,
                    "e65d082030501a3ebcbcd7c9f7c71aa9d28fdfff463bf4cf4716a3fe13ac360e",
                    "mushroom",
                    "73/mushroom",
                ),
            ),
            (
                "class",
                "cap_shape",
                "cap_surface",
                "cap_color",
                "bruises",
                "odor",
                "gill_attachment",
                "gill_spacing",
                "gill_size",
                "gill_color",
                "stalk_shape",
                "stalk_root",
                "stalk_surface_above_ring",
                "stalk_surface_below_ring",
                "stalk_color_above_ring",
                "stalk_color_below_ring",
                "veil_type",
                "veil_color",
                "ring_number",
                "ring_type",
                "spore_print_color",
                "population",
                "habitat",
            ),
            "class",
            8_124,
            {"e": 4_208, "p": 3_916},
            "5a2f9eaf7c33feaacea4e5a76278083f3c016c7bb7d4d6cd3064b2ec23d81695",
            "Mushroom (1981). UCI Machine Learning Repository. doi:10.24432/C5959T",
            {"stalk_root": 2_480},
            note="class e is edible, p poisonous; veil_type is the same everywhere",
        ),
        DataSet(
            "lenses",
            "Contact lenses, all combinations of four attributes",
            (
                published(
                    "lenses.data",
                    408,
                    "711f22d5a4bed062bb715d39d23d54d2667206fbd97c94c7fd013ede47fb96c2",
                    "lenses",
                    "58/lenses",
                ),
            ),
            ("id", "age", "spectacle_prescription", "astigmatic", "tear_production_rate", "class"),
            "class",
            24,
            {"1": 4, "2": 5, "3": 15},
            "529ae6b9d9e05ae0d23d2d71e5dac70b446dabc8eacca0ba0ca40f6d1a1a1acc",
            "Cendrowska, J. (1987). Lenses. UCI Machine Learning Repository. doi:10.24432/C5K88Z",
            separator=r"\s+",
            note="values are the numbers of the file; class 1 is hard lenses, 2 soft, 3 none",
        ),
        DataSet(
            "iris",
            "Iris plants, as in the UCI archive (two rows differ from Fisher's paper)",
            (
                published(
                    "iris.data",
                    4_551,
                    "6f608b71a7317216319b4d27b4d9bc84e6abd734eda7872b71a458569e2656c0",
                    "iris",
                    "53/iris",
                ),
            ),
            ("sepal_length", "sepal_width", "petal_length", "petal_width", "class"),
            "class",
            150,
            {"Iris-setosa": 50, "Iris-versicolor": 50, "Iris-virginica": 50},
            "e1412f8c8c69c78fea91c42d8732f7edeb182234e9a67261b29617cc6097cc7b",
            "Fisher, R. A. (1936). Iris. UCI Machine Learning Repository. doi:10.24432/C56C76",
            note="rows 35 and 38 are those of the UCI file, not those of Fisher's paper; lengths in cm",
        ),
    )
}
