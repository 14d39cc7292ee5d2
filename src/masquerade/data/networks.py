"""The networks and the basket files: where they are published, their sizes and citations."""

from __future__ import annotations

from collections.abc import Mapping

from masquerade.data.catalogue_types import BNLEARN, CC_BY, FIMI, BasketFile, NetworkFile, RawFile


def published(
    name: str, title: str, size: int, sha256: str, *, counts: tuple[int, int, int], citation: str
) -> NetworkFile:
    """Return a network of bnlearn's repository."""
    file = RawFile(f"{name}.bif", BNLEARN, size, sha256, (f"bnrepository/{name}/{name}.bif.gz",))
    return NetworkFile(name, title, file, *counts, citation)


NETWORKS: Mapping[str, NetworkFile] = {
    found.name: found
    for found in (
        published(
            "alarm",
            "ALARM, monitoring of patients under anaesthesia",
            13_376,
            "701e6c561f71b55669070c29614f0724b761289aa2c4a35bcc97b638ee881fa2",
            counts=(37, 46, 509),
            citation=(
                "Beinlich, I. A., Suermondt, H. J., Chavez, R. M., Cooper, G. F. (1989). The ALARM "
                "monitoring system. Proc. 2nd European Conf. on Artificial Intelligence in Medicine, 247-256"
            ),
        ),
        published(
            "asia",
            "ASIA, lung disease and a visit to Asia",
            1_074,
            "9f770c96940dc4d860b581602120790ac538983b30b28d38631b8184dc7b5f89",
            counts=(8, 8, 18),
            citation=(
                "Lauritzen, S. L., Spiegelhalter, D. J. (1988). Local computations with probabilities on "
                "graphical structures. J. Royal Statistical Society B 50(2), 157-224"
            ),
        ),
        published(
            "cancer",
            "CANCER, causes and signs of lung cancer",
            725,
            "05d4ea00a758450eed6fe68ea6de4da05ce0e3e919bd3e8ff7f0bc80a1db4b48",
            counts=(5, 4, 10),
            citation=(
                "Korb, K. B., Nicholson, A. E. (2010). Bayesian Artificial Intelligence, 2nd ed., "
                "section 2.2.2"
            ),
        ),
        published(
            "earthquake",
            "EARTHQUAKE, an alarm and two neighbours",
            747,
            "74dd131e2c6437a39de17f2963d2d16fadd91e70450d1fc20501df05e8dc4f2e",
            counts=(5, 4, 10),
            citation=(
                "Korb, K. B., Nicholson, A. E. (2010). Bayesian Artificial Intelligence, 2nd ed., "
                "section 2.5.1"
            ),
        ),
    )
}

BASKETS: Mapping[str, BasketFile] = {
    found.name: found
    for found in (
        BasketFile(
            "retail.dat",
            "Retail, baskets of an anonymous Belgian supermarket",
            RawFile(
                "retail.dat",
                FIMI,
                4_167_490,
                "d967431ba522e32f0fbb243f2ee113ecd4cb374cb0234c1b0858dae1d499a055",
            ),
            88_162,
            16_470,
            "Brijs, T., Swinnen, G., Vanhoof, K., Wets, G. (1999). Using association rules for product "
            "assortment decisions: a case study. Proc. 5th ACM SIGKDD, 254-260",
            "for research, with the citation",
        ),
        BasketFile(
            "mushroom.dat",
            "Mushroom as transactions of 23 items",
            RawFile(
                "mushroom.dat",
                FIMI,
                562_284,
                "06206c73983251a9488414c4379a030e836bbeb6fe9eff1b5624a0193a811640",
            ),
            8_124,
            119,
            "Mushroom (1981). UCI Machine Learning Repository. doi:10.24432/C5959T",
            CC_BY,
        ),
    )
}
