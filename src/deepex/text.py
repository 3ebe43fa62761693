"""How numbers, shares, durations, counts and intervals read in words: the only place. It knows no run and no page."""

from collections.abc import Sequence

MOST_NAMED = 4


def say_duration(seconds: float) -> str:
    """How long something took, as people say it.

    >>> say_duration(0.084), say_duration(1.84), say_duration(200), say_duration(7260)
    ('0.084 s', '1.8 s', '3 min 20 s', '2 h 1 min')
    """
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2g} s"
    minutes = round(seconds) // 60
    return f"{minutes} min {round(seconds) % 60} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def say_time_left(done: float, total: float, seconds: float) -> str:
    """What is left of steps or epochs, if all of them are needed; nothing where their number is not known.

    >>> say_time_left(10, 40, 30.0), say_time_left(1, 25, 300.0), say_time_left(1, 0, 300.0)
    ('at most 1:30 left', 'at most 2:00:00 left', '')
    """
    if total < done:
        return ""
    return f"at most {say_clock(seconds / done * (total - done))} left"


def say_clock(seconds: float) -> str:
    """A time as a clock shows it.

    >>> say_clock(75), say_clock(7275)
    ('1:15', '2:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


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


def say_share(share: float) -> str:
    """A share in percent, with a decimal where it is small.

    >>> say_share(0.4944), say_share(0.0065), say_share(0.0), say_share(0.0001)
    ('49 %', '0.7 %', '0 %', '< 0.1 %')
    """
    if share == 0:
        return "0 %"
    if share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def say_percent(share: float | None, decimals: int = 0) -> str:
    """A share in percent with as many decimals as others in its column; nothing for one that is not known.

    >>> say_percent(0.4723, 1), say_percent(1.04), say_percent(None)
    ('47.2 %', '104 %', '')
    """
    return "" if share is None else f"{100 * share:.{decimals}f} %"


def say_size(num_bytes: float) -> str:
    """A number of bytes in memory or on disk, by powers of 1,024.

    >>> say_size(0), say_size(2500), say_size(3 << 30)
    ('0 bytes', '2.44 KiB', '3 GiB')
    """
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = 0
    while num_bytes >= 1024 and power < len(units) - 1:
        num_bytes, power = num_bytes / 1024, power + 1
    return f"{num_bytes:.3g} {units[power]}"


def say_value(value: float) -> str:
    """A metric or a loss, with four significant figures.

    >>> say_value(0.291987), say_value(2143.4)
    ('0.2920', '2143')
    """
    return f"{value:#.4g}".rstrip(".")


def say_figure(value: float) -> str:
    """A measured figure, with three significant ones.

    >>> say_figure(0.2671), say_figure(1.934), say_figure(31.46), say_figure(4821.0)
    ('0.267', '1.93', '31.5', '4,821')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def say_interval(value: float, low: float | None, high: float | None) -> str:
    """A figure with its interval, where it has one.

    >>> say_interval(1.934, 1.8, 2.07), say_interval(31.46, None, None)
    ('1.93 (1.80 to 2.07)', '31.5')
    """
    if low is None or high is None:
        return say_figure(value)
    return f"{say_figure(value)} ({say_figure(low)} to {say_figure(high)})"


def say_plural(number: int, noun: str) -> str:
    """A number of things.

    >>> say_plural(1, "rank"), say_plural(27360, "rank")
    ('1 rank', '27,360 ranks')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def say_ratio(ratio: float) -> str:
    """How many times as much.

    >>> say_ratio(1.384)[:-2], say_ratio(12.3)[:-2]
    ('1.38', '12')
    """
    return f"{ratio:.2f} ×" if ratio < 10 else f"{ratio:.0f} ×"


def say_number(number: float) -> str:
    """About how many.

    >>> say_number(3.14), say_number(271.8)
    ('3.1', '272')
    """
    return f"{number:.1f}" if number < 10 else f"{number:,.0f}"


def say_bytes(num_bytes: float) -> str:
    """A number of bytes that travel, by powers of 1,000.

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
    where = f" on {say_list(places)}" if places else ""
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f"{noun} {say_list([str(rank) for rank in ranks])}{where}"


def say_list(names: Sequence[str], most: int = MOST_NAMED) -> str:
    """Names with commas and an 'and'; those beyond `most` are counted.

    >>> say_list(["a", "b", "c"]), say_list(["a", "b", "c"], most=2)
    ('a, b and c', 'a, b and 1 more')
    """
    if len(names) > most:
        names = [*names[:most], f"{len(names) - most:,} more"]
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
