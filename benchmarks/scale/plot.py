"""Plot the time of a search by the size of the tenant, with the alternatives."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.scale.measure import DENSE, LEXICAL, OURS, Row

SEARCH = "kosmos, the retriever alone"
"""What compares with the alternatives, which fetch no passages."""

_OURS = {OURS: "o", SEARCH: "."}
# Told apart without colour: by mark and by dash.
_STYLES = [("s", "--"), ("^", "-."), ("D", ":"), ("v", (0, (5, 1, 1, 1, 1, 1))), ("x", (0, (1, 3)))]


def plot(rows: Sequence[Row], title: str, file: Path) -> None:
    """Draw the p50 of each way against the chunks of the tenant, a panel for each retriever."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(11, 6), sharey=True, layout="constrained")
    for panel, retriever in zip(panels, (LEXICAL, DENSE), strict=True):
        styles = iter(_STYLES)
        for way, points in curves(rows, retriever).items():
            is_kosmos = way in (OURS, SEARCH)
            mark, dash = (_OURS[way], "-") if is_kosmos else next(styles)
            panel.plot(
                *zip(*points, strict=True),
                marker=mark,
                linestyle=dash,
                color="black" if is_kosmos else "dimgray",
                linewidth=2.2 if way == OURS else 1.2,
                label=label(rows, retriever, way),
            )
        panel.set(xscale="log", yscale="log", title=f"{retriever} retriever", xlabel="chunks of the tenant")
        panel.grid(visible=True, which="major", color="lightgray", linewidth=0.6)
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.legend(frameon=False, handlelength=4, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    panels[0].set_ylabel("p50 of a question, ms")
    figure.suptitle(title)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    pyplot.close(figure)


def curves(rows: Sequence[Row], retriever: str) -> dict[str, list[tuple[int, float]]]:
    """Return the points of each way of a retriever by size, ours first: the whole answer, and the search in it."""
    points_by_way: dict[str, list[tuple[int, float]]] = {OURS: [], SEARCH: []}
    for row in sorted(rows, key=lambda row: (row.way, row.share.chunks)):
        if row.retriever == retriever:
            points_by_way.setdefault(row.way, []).append((row.share.chunks, row.p50))
            if row.way == OURS and row.in_retriever is not None:
                points_by_way[SEARCH].append((row.share.chunks, row.in_retriever))
    return {way: points for way, points in points_by_way.items() if points}


def label(rows: Sequence[Row], retriever: str, way: str) -> str:
    """Name a way; one that is quick because it misses hits has its recall in the name."""
    recalls = [
        row.recall_10 for row in rows if (row.retriever, row.way) == (retriever, way) and row.recall_10 is not None
    ]
    return f"{way} (recall@10 {min(recalls):.2f} to {max(recalls):.2f})" if recalls else way
