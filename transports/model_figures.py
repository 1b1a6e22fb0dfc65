"""Figures 1 and 3 of Adaptive Pacing (Zou and others), drawn from the model; `weir transports figures`.

Figure 1 is the completion time of a window by the number of flows, equations (5) and (6). Figure 3 is the
normalized goodput by the interval, equation (12). B is 100 packets of 1500 bytes, and C is 10 Gbit/s.

Inferred, as the paper does not state them: figure 1 has the RTT of figure 2, 400 us, and an RTO of 200 ms.
Its interval spreads the window over the RTT. The RTT of figure 3 is 300 us, as in section IV. Its numbers of
flows are chosen here.
"""

from __future__ import annotations

from pathlib import Path

from transports import adaptive_pacing as model

BUFFER_PACKETS = 100
PACKETS_PER_S = 10e9 / 8 / 1500
RTO_S = 0.2
FIGURE_1_WINDOW, FIGURE_1_RTT_S = 4, 400e-6
FIGURE_1_FLOWS = range(1, 151)
FIGURE_3_WINDOW, FIGURE_3_RTT_S, FIGURE_3_K = 3, 300e-6, 1
FIGURE_3_FLOWS = (20, 40, 60, 80)
FIGURE_3_STEPS = 200
SIZE_IN = (3.4, 2.3)


def window_time_s(flows: int, interval_s: float) -> float:
    """Figure 1: the completion time of a window."""
    lost = model.incast_probability(flows, FIGURE_1_WINDOW, BUFFER_PACKETS, PACKETS_PER_S, interval_s)
    return model.completion_time_s(lost, FIGURE_1_RTT_S, RTO_S, FIGURE_1_WINDOW, interval_s)


def goodput(flows: int, interval_s: float) -> float:
    """Figure 3: the normalized goodput, 0 to 1."""
    return model.goodput(
        flows, FIGURE_3_WINDOW, BUFFER_PACKETS, PACKETS_PER_S, interval_s, FIGURE_3_K, FIGURE_3_RTT_S
    )


def draw(folder: Path) -> list[Path]:
    """Write figure_1.svg and figure_3.svg into a folder. Raises OSError, or ImportError (matplotlib)."""
    from matplotlib.figure import Figure  # an optional package, which takes a second to import

    folder.mkdir(parents=True, exist_ok=True)
    first, third = (Figure(figsize=SIZE_IN, layout="constrained") for _ in range(2))
    axes = first.add_subplot(xlabel="flows", ylabel="window completion time, ms", yscale="log")
    for label, interval_s in (("without pacing", 0.0), ("with pacing", FIGURE_1_RTT_S / FIGURE_1_WINDOW)):
        axes.plot(
            FIGURE_1_FLOWS, [1e3 * window_time_s(flows, interval_s) for flows in FIGURE_1_FLOWS], label=label
        )
    axes.legend(frameon=False)
    axes = third.add_subplot(xlabel="interval t, µs", ylabel="normalized goodput", ylim=(0, 1.05))
    most_s = FIGURE_3_RTT_S / FIGURE_3_WINDOW
    intervals_s = [most_s * step / FIGURE_3_STEPS for step in range(FIGURE_3_STEPS + 1)]
    for flows in FIGURE_3_FLOWS:
        axes.plot(
            [1e6 * at for at in intervals_s], [goodput(flows, at) for at in intervals_s], label=f"n = {flows}"
        )
    axes.legend(frameon=False)
    written = []
    for figure, name in ((first, "figure_1.svg"), (third, "figure_3.svg")):
        figure.savefig(folder / name, metadata={"Date": None})
        written.append(folder / name)
    return written
