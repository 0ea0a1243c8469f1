#!/usr/bin/env python3
"""Draw the times in a file of evidence: each kernel on each input, and the floor.

    python3 tools/plot_evidence.py                draw all that can be drawn
    python3 tools/plot_evidence.py FILE|LESSON    only these

Writes an SVG and a PNG beside each file of evidence, replacing those that are there. Both carry the
data they were drawn from and the evidence's sha256, so tools/tests/test_plot_evidence.py can tell
whether a picture still shows its evidence. Nothing is measured, rounded or left out here: the
numbers above the bars are as the program printed them.

Needs matplotlib (pip install matplotlib); no other tool does.

Exit status: 0 drawn, 1 the evidence cannot be drawn, 2 wrong use, 77 no matplotlib.
"""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Callable

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools import check_evidence, course, evidence  # noqa: E402
from tools.evidence import NUMBER, Evidence, EvidenceError  # noqa: E402

# An opaque card of its own, so that the picture reads the same on a light and on a dark page.
# The bars' colors keep apart for color-blind readers and in gray.
PAPER, INK, FAINT = "#f6f8fa", "#1f2328", "#8c959f"
COLORS = ("#0b3d91", "#d1661b", "#3b9e8f", "#8a4fa8", "#b3a125", "#6e7781", "#5aa9e6",
          "#c2527f")
RED = "#b3261e"
SLOW = 12.0  # from this ratio of the longest to the shortest time on, the axis is logarithmic


@dataclass
class Panel:
    """One pair of axes. Figures are kept as they were printed."""
    title: str
    inputs: list[str]
    kernels: dict[str, list[str]] = field(default_factory=dict)  # name: a time in ms an input
    floor: list[str] = field(default_factory=list)  # in ms: one for all inputs, or one for each
    floor_name: str = ""

    def figures(self) -> list[float]:
        texts = [text for times in self.kernels.values() for text in times]
        return [evidence.number(text) for text in texts + self.floor]


# ---- what to draw of which lesson ----------------------------------------------------------------

def day29(found: Evidence) -> list[Panel]:
    [table] = [table for table in evidence.tables(found.stdout) if "speedup" in table.columns]
    floor = re.search(rf"({NUMBER}) ms\D+{NUMBER} GB/s", found.stdout)
    return [Panel("", [row["input"] for row in table.rows], {
        "histogramGlobal": [row["global (ms)"] for row in table.rows],
        "histogramPrivate": [row["private (ms)"] for row in table.rows],
    }, [floor[1]], "sumBytes, every byte read once by byte loads")]


def at_the_floor(found: Evidence) -> list[Panel]:
    panels: dict[str, Panel] = {}
    for table in evidence.tables(found.stdout):
        for row in table.rows:
            if "kernel" not in row:
                continue
            panel = panels.setdefault(row["size"], Panel(
                f"{int(row['size']):,} bytes", [],
                floor_name=f"{check_evidence.FLOOR_KERNEL}, on the same input"))
            if row["input"] not in panel.inputs:
                panel.inputs.append(row["input"])
            if row["kernel"] == check_evidence.FLOOR_KERNEL:
                panel.floor.append(row["time (ms)"])
            else:
                panel.kernels.setdefault(row["kernel"], []).append(row["time (ms)"])
    return list(panels.values())


def sort_at_speed(found: Evidence) -> list[Panel]:
    panels: dict[str, Panel] = {}
    for table in evidence.tables(found.stdout):
        if not {"keys", "input", "CUB (ms)", "ours (ms)"} <= set(table.columns):
            continue
        for row in table.rows:
            panel = panels.setdefault(row["keys"], Panel(f"{row['keys']} keys", [], {
                "CUB DeviceRadixSort": [], "this lesson": []}))
            panel.inputs.append(row["input"])
            panel.kernels["CUB DeviceRadixSort"].append(row["CUB (ms)"])
            panel.kernels["this lesson"].append(row["ours (ms)"])
    return list(panels.values())


PLOTS: dict[str, tuple[str, Callable[[Evidence], list[Panel]]]] = {
    "histogram": ("Day 29: time per input and kernel", day29),
    "histogram_at_the_floor": ("Histograms against the floor of reading", at_the_floor),
    "92_counting_sort_at_speed": ("Stable counting sort of byte keys, against the library",
                                  sort_at_speed),
}


def can_draw(path: Path) -> bool:
    match = evidence.NAME.fullmatch(path.name)
    return bool(match) and match[3] in PLOTS


def panels_of(found: Evidence) -> list[Panel]:
    """The data of the picture. Raises EvidenceError when the output does not hold it."""
    stem = Path(found.get("source")).stem
    try:
        panels = PLOTS[stem][1](found)
    except (KeyError, ValueError, TypeError) as error:
        raise EvidenceError(f"{found.path}: the figures to draw were not found: {error}") from None
    if not panels or any(not panel.inputs or not panel.kernels for panel in panels):
        raise EvidenceError(f"{found.path}: there are no figures to draw")
    for panel in panels:
        if any(len(times) != len(panel.inputs) for times in panel.kernels.values()):
            raise EvidenceError(f"{found.path}: a kernel lacks a time for an input")
        if len(panel.floor) not in (0, 1, len(panel.inputs)):
            raise EvidenceError(f"{found.path}: an input lacks its floor")
        if any(not figure > 0 for figure in panel.figures()):
            raise EvidenceError(f"{found.path}: a time is not positive")
    return panels


def description(found: Evidence, panels: list[Panel]) -> str:
    """What the picture carries with it."""
    return json.dumps({"evidence": found.path.name, "body sha256": found.get("body sha256"),
                       "panels": [asdict(panel) for panel in panels]}, sort_keys=True)


# ---- drawing -------------------------------------------------------------------------------------

def draw(found: Evidence, panels: list[Panel]):
    """The figure. Each bar's label is the text that the program printed."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    matplotlib.rcParams.update({
        "svg.fonttype": "none", "svg.hashsalt": "evidence", "font.family": "sans-serif",
        "font.size": 10, "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK,
        "ytick.color": INK, "axes.edgecolor": FAINT})
    most = max(len(panel.kernels) for panel in panels)
    columns = 1 if most > 3 else min(len(panels), 2)
    rows = -(-len(panels) // columns)
    figure, grid = pyplot.subplots(rows, columns, squeeze=False, facecolor=PAPER,
                                   figsize=((10.5 if most > 3 else 7.0) if columns == 1 else 12.5,
                                            4.4 * rows + 0.9), layout="constrained")
    axes = [one for line in grid for one in line]
    for panel, one in zip(panels, axes):
        draw_panel(one, panel)
    for one in axes[len(panels):]:
        one.set_axis_off()
    handles, names = axes[0].get_legend_handles_labels()
    order = sorted(range(len(names)), key=lambda at: names[at].startswith("floor"))  # Bars first.
    figure.legend([handles[at] for at in order], [names[at] for at in order], frameon=False,
                  loc="outside upper center", ncols=1 if columns == 1 and most <= 3 else 3,
                  title=f"{PLOTS[Path(found.get('source')).stem][0]}, one {found.get('gpu')}",
                  title_fontproperties={"size": 13, "weight": "bold"})
    figure.supxlabel(caption(found), fontsize=8)
    return figure


def draw_panel(axes, panel: Panel) -> None:
    width = 0.84 / len(panel.kernels)
    small = len(panel.kernels) > 3
    for number, (kernel, times) in enumerate(panel.kernels.items()):
        places = [at + (number - (len(panel.kernels) - 1) / 2) * width
                  for at in range(len(panel.inputs))]
        bars = axes.bar(places, [evidence.number(text) for text in times], width * 0.92,
                        label=kernel, color=COLORS[number % len(COLORS)])
        if small and len(panel.floor) == len(panel.inputs):
            label_above_floor(axes, panel, places, times)
        else:
            axes.bar_label(bars, times, padding=2, fontsize=7 if small else 9,
                           rotation=90 if small else 0)
    draw_floor(axes, panel)
    figures = panel.figures()
    if max(figures) / min(figures) >= SLOW:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_ylim(min(figures) / 3, max(figures) * (4 if small else 2))
        axes.set_ylabel("time of one run (ms, logarithmic)")
    else:
        axes.set_ylim(0, max(figures) * (1.3 if small else 1.12))
        axes.set_ylabel("time of one run (ms)")
    axes.set_xticks(range(len(panel.inputs)), panel.inputs)
    axes.set_xlabel("input")
    axes.set_title(panel.title, fontsize=11)
    axes.set_facecolor(PAPER)
    axes.grid(axis="y", color=FAINT, alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def label_above_floor(axes, panel: Panel, places: list[float], times: list[str]) -> None:
    """The label of a bar that ends at or below the dashed line begins above the line."""
    for place, text, floor in zip(places, times, panel.floor):
        height = max(evidence.number(text), evidence.number(floor))
        axes.annotate(text, (place, height), (0, 4), fontsize=7, rotation=90,
                      textcoords="offset points", horizontalalignment="center",
                      verticalalignment="bottom")


def draw_floor(axes, panel: Panel) -> None:
    """A dashed line for all inputs with its figure at the end, or one for each above its figure."""
    name = f"floor: {panel.floor_name}"
    if len(panel.floor) == 1:
        height = evidence.number(panel.floor[0])
        axes.axhline(height, color=RED, linestyle="--", linewidth=1.4, label=name)
        axes.annotate(panel.floor[0], (1, height), (3, 0), color=RED, fontsize=9,
                      xycoords=("axes fraction", "data"), textcoords="offset points",
                      verticalalignment="center")
        return
    for at, text in enumerate(panel.floor):
        axes.hlines(evidence.number(text), at - 0.46, at + 0.46, color=RED, linestyle="--",
                    linewidth=1.4, zorder=3, label=name if at == 0 else None)
        axes.annotate(text, (at, 0), (0, -26), color=RED, fontsize=9,
                      xycoords=("data", "axes fraction"), textcoords="offset points",
                      horizontalalignment="center", verticalalignment="top")
    if panel.floor:
        axes.xaxis.labelpad = 22


def caption(found: Evidence) -> str:
    return (f"Source: {found.path.name}, recorded {found.get('date')[:10]}, "
            f"nvcc {found.get('nvcc')}, commit {found.get('commit')[:12]}")


def save(figure, path: Path, text: str) -> None:
    """Both pictures, each in one step."""
    for kind in ("svg", "png"):
        buffer = io.BytesIO()
        metadata = {"Description": text, "Date": None} if kind == "svg" else {"Description": text}
        figure.savefig(buffer, format=kind, dpi=150, facecolor=PAPER, metadata=metadata)
        data = buffer.getvalue()
        if kind == "svg":  # matplotlib leaves blanks at the ends of lines.
            data = re.sub(rb"[ \t]+\n", b"\n", data)
            title = f"<title>Times recorded in {path.name}</title>"  # For readers who cannot see.
            data = re.sub(rb"(<svg[^>]*>)", rb"\1\n " + title.encode(), data, count=1)
        course.write_atomically(path.with_suffix(f".{kind}"), data)


def chosen(names: list[str], root: Path) -> list[Path]:
    if not names:
        return [path for path in evidence.files(root) if can_draw(path)]
    paths = []
    for name in names:
        if Path(name).is_file() and Path(name).suffix == ".txt":
            paths.append(Path(name).resolve())
            continue
        for lesson in course.find(name, root):
            runs = [path for path in evidence.of_lesson(lesson.path, root) if can_draw(path)]
            if not runs:
                raise course.CourseError(f"there is no evidence of {lesson.path} to draw")
            paths.append(evidence.newest(runs))
    for path in paths:
        if not can_draw(path):
            raise course.CourseError(f"it is not known how to draw {path.name}")
    return paths


def main(argv: list[str] | None = None, root: Path = course.ROOT) -> int:
    parser = course.Parser(__doc__)
    parser.add_argument("file", nargs="*", metavar="FILE|LESSON", help="default: all")
    options = parser.parse_args(argv)
    try:
        paths = chosen(options.file, root)
        try:
            import matplotlib.pyplot
        except ImportError:
            print("plot_evidence.py: skipped: there is no matplotlib here; install it with "
                  "'pip install matplotlib'", file=sys.stderr)
            return 77
        for path in paths:
            for problem in check_evidence.check_file(path, root):
                raise EvidenceError(f"{path.name}: {problem}")
            found = evidence.parse(path)
            panels = panels_of(found)
            figure = draw(found, panels)
            save(figure, path, description(found, panels))
            matplotlib.pyplot.close(figure)
            print(path.with_suffix(".svg").relative_to(root), path.with_suffix(".png").name)
    except course.CourseError as error:
        print(f"plot_evidence.py: {error}", file=sys.stderr)
        return 2
    except EvidenceError as error:
        print(f"plot_evidence.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(course.run_tool(main))
