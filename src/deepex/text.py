"""How numbers of a diagnosis read in words. It knows no cause and no cure."""

from collections.abc import Sequence

MOST_NAMED = 4


def say_time(seconds: float) -> str:
    """A short time with two figures or three.

    >>> say_time(2.5), say_time(0.0172), say_time(0.00043), say_time(0.0)
    ('2.50 s', '17.2 ms', '430 µs', '0 µs')
    """
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            number = seconds / size
            return (
                f"{number:.0f} {unit}"
                if number >= 100
                else f"{number:.3g} {unit}"
                if number >= 10
                else (f"{number:.2f} {unit}")
            )
    return f"{seconds * 1e6:.0f} µs"


def say_part(share: float) -> str:
    """A share in whole percent.

    >>> say_part(0.314), say_part(0.004), say_part(0.0)
    ('31 %', 'under 1 %', 'nothing')
    """
    if share <= 0:
        return "nothing"
    return f"{100 * share:.0f} %" if share >= 0.01 else "under 1 %"


def say_ratio(ratio: float) -> str:
    """How many times as much.

    >>> say_ratio(1.384)[:-2], say_ratio(12.3)[:-2]
    ('1.38', '12')
    """
    return f"{ratio:.2f} ×" if ratio < 10 else f"{ratio:.0f} ×"


def say_count(number: float) -> str:
    """About how many.

    >>> say_count(3.14), say_count(271.8)
    ('3.1', '272')
    """
    return f"{number:.1f}" if number < 10 else f"{number:,.0f}"


def say_bytes(num_bytes: float) -> str:
    """
    >>> say_bytes(800), say_bytes(1_234_567)
    ('800 B', '1.2 MB')
    """
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= size:
            return f"{num_bytes / size:.3g} {unit}" if num_bytes >= 100 * size else f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes:.0f} B"


def say_ranks(ranks: Sequence[int], hosts: Sequence[str]) -> str:
    """Ranks and where they stand; of many, the first few.

    >>> say_ranks([3], ["n2"]), say_ranks([0, 1], ["n1", "n1"])
    ('rank 3 on n2', 'ranks 0 and 1 on n1')
    >>> say_ranks([0, 1, 2, 3, 4, 9], ["n1", "n1", "n2", "n2", "n3", "n3"])
    'ranks 0, 1, 2, 3 and 2 more on n1, n2 and n3'
    """
    places = list(dict.fromkeys(host for host in hosts if host))
    where = f" on {_listed(places, MOST_NAMED)}" if places else ""
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f"{noun} {_listed([str(rank) for rank in ranks], MOST_NAMED)}{where}"


def _listed(names: Sequence[str], most: int) -> str:
    """Names with commas and an 'and'; those beyond `most` are counted."""
    if len(names) > most:
        names = [*names[:most], f"{len(names) - most} more"]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
