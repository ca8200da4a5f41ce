"""How the fastest of several runs is found on a machine that is never quiet.

All take turns; who looks best is then measured against the first one alone. Choosing the best of many by the same
numbers that say how good it is would favour the luckiest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter

Run = Callable[[int], None]
"""Does its work so many times, and returns when that is done."""

GAIN = 0.95
"""A new winner takes less than this part of the first one's time."""
SLICE = 0.001
"""Seconds that are timed at once, at least."""
ROUNDS, FINAL, LEAST = 5, 15, 3
"""Rounds of all, rounds of the last two, and the fewest that a median is taken of."""
HOPELESS = 2
"""Who took so many times as long as the first one in a first look is not measured further."""


@dataclass(frozen=True)
class Outcome:
    """Which run won, its median seconds and those of the first one."""

    winner: str
    seconds: float
    default_seconds: float


def fastest(runs: Mapping[str, Run], budget: float, clock: Callable[[], float] = perf_counter) -> Outcome | None:
    """The run that takes least, in about `budget` seconds; the first one unless another is better by more than 5 %.

    Runs that raise are left out. None where the budget is too small for a median, or the first one raises.
    """
    end = clock() + budget
    default = next(iter(runs))
    looks: dict[str, float] = {}
    for name, run in runs.items():
        seconds = _look(run, clock)
        if seconds is not None and seconds < HOPELESS * looks.get(default, seconds + 1):
            looks[name] = seconds
        if default not in looks or looks[default] * 3 * LEAST > budget:
            return None
        if clock() > end - budget / 2:
            break
    calls = max(1, int(SLICE / max(looks[default], 1e-9)))
    if len(looks) == 1:
        return Outcome(default, looks[default], looks[default])
    times = _rounds({n: runs[n] for n in looks}, calls, ROUNDS, 1, end - budget / 2, clock)
    best = min(times, key=lambda n: median(times[n])) if default in times else default
    if best == default:
        found = median(times.get(default, [looks[default]]))
        return Outcome(default, found, found)
    return _final(runs, default, best, _rounds({n: runs[n] for n in (default, best)}, calls, FINAL, LEAST, end, clock))


def _final(runs: Mapping[str, Run], default: str, best: str, times: Mapping[str, list[float]]) -> Outcome | None:
    if default not in times:
        return None
    before = median(times[default])
    # The minimum too: who launches twice is disturbed twice as often, which says nothing of a quiet machine.
    if best in times and max(_ratios(times[best], times[default])) < GAIN:
        return Outcome(best, median(times[best]), before)
    return Outcome(default, before, before)


def _ratios(best: list[float], default: list[float]) -> tuple[float, ...]:
    """Median of the ratios of each round, ratio of the medians, ratio of the shortest times."""
    rounds = median(b / max(d, 1e-12) for b, d in zip(best, default))
    return rounds, median(best) / max(median(default), 1e-12), min(best) / max(min(default), 1e-12)


def _look(run: Run, clock: Callable[[], float]) -> float | None:
    """Seconds of a run after one that warms up, of a short one the shorter of two; None if it raises."""
    try:
        run(1)
        first = _seconds(run, 1, clock)
        return first if first > SLICE else min(first, _seconds(run, 1, clock))
    except Exception:  # noqa: BLE001 - a way that fails is no way
        return None


def _seconds(run: Run, calls: int, clock: Callable[[], float]) -> float:
    start = clock()
    run(calls)
    return (clock() - start) / calls


def _rounds(
    runs: Mapping[str, Run], calls: int, rounds: int, least: int, end: float, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds per call of each in every round; each round begins with another. Who raises disappears."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for done in range(rounds):
        if done >= least and clock() > end:
            break
        names = list(times)
        for name in names[done % len(names) :] + names[: done % len(names)]:
            try:
                times[name].append(_seconds(runs[name], calls, clock))
            except Exception:  # noqa: BLE001 - a way that fails is no way
                del times[name]
        if not times:
            break
    return times
