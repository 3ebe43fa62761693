"""A strategy as it is written: `NAME:ARGUMENT,KEY=VALUE`, `hierarchical(INNER,OUTER)`, each `+COMPRESSION`.

It takes a text apart and says what is wrong with it. It knows no strategy.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from deepex.errors import ConfigError, unknown
from deepex.reference import FORM, is_reference


@dataclass(frozen=True, kw_only=True)
class SyncSpec:
    """The parts of a text.

    >>> spec = SyncSpec.parse("local:8,outer=nesterov+bf16")
    >>> spec.name, spec.argument, spec.options, spec.compression
    ('local', '8', {'outer': 'nesterov'}, 'bf16')
    >>> SyncSpec.parse("hierarchical(allreduce,local:8,outer=nesterov)").inside
    ('allreduce', 'local:8,outer=nesterov')
    >>> spec.with_options(outer="momentum", after=1).text
    'local:8,outer=momentum,after=1+bf16'
    >>> own = SyncSpec.parse("mine.py:Gossip:4,peers=2", known=["local"])
    >>> own.name, own.argument, own.options
    ('mine.py:Gossip', '4', {'peers': '2'})
    """

    name: str
    argument: str = ""
    options: dict[str, str] = field(default_factory=dict)
    inside: tuple[str, ...] = ()
    compression: str = ""

    @classmethod
    def parse(cls, text: str, known: Collection[str] = ()) -> "SyncSpec":
        """Take a text apart; one that begins with none of the `known` names may begin with a name of code."""
        own = FORM.match(text)
        if known and own is not None and own["place"] not in known and is_reference(own[0]):
            return replace(cls.parse(f"own{text[own.end() :]}"), name=own[0])
        head, closing, tail = text.rpartition(")")
        if closing:
            name, _, body = head.partition("(")
            inside = tuple(_parts(body))
        else:
            name, inside = "", ()
        rest, _, compression = tail.partition("+")
        first, *pairs = rest.split(",")
        if not closing:
            name, _, argument = first.partition(":")
        elif first:
            raise ConfigError(f"sync '{text}': '{first}' behind the bracket. Allowed there: ',key=value' and '+NAME'.")
        else:
            argument = ""
        options = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        if len(options) < len(pairs):
            wrong = next(pair for pair in pairs if "=" not in pair)
            raise ConfigError(
                f"sync '{text}': '{wrong}' is no option. Write options as key=value, as in outer=nesterov."
            )
        return cls(name=name, argument=argument, options=options, inside=inside, compression=compression)

    @property
    def text(self) -> str:
        """The parts put together, as people write them."""
        body = f"({','.join(self.inside)})" if self.inside else ""
        argument = f":{self.argument}" if self.argument else ""
        options = "".join(f",{key}={value}" for key, value in self.options.items())
        compression = f"+{self.compression}" if self.compression else ""
        return f"{self.name}{body}{argument}{options}{compression}"

    def with_options(self, **options: object) -> "SyncSpec":
        """The same with some options set."""
        return replace(self, options=self.options | {key: str(value) for key, value in options.items()})

    def wrong(self, problem: str, cure: str) -> ConfigError:
        """The error for a text: what was given, what is allowed, what to write."""
        return ConfigError(f"sync '{self.text}': {problem}. {cure}")

    def takes(self, *keys: str, argument: bool = False, brackets: bool = False) -> None:
        """Refuse an argument, brackets or an option that the strategy has not."""
        if self.inside and not brackets:
            raise self.wrong(f"{self.name} takes no strategies in brackets", "Leave the brackets out.")
        if self.argument and not argument:
            raise self.wrong(f"{self.name} takes no argument", f"Write --sync {self.name}.")
        for key in self.options:
            if key not in keys:
                if not keys:
                    raise self.wrong(f"{self.name} has no option '{key}'", f"Write --sync {self.name}.")
                raise ConfigError(f"sync '{self.text}': " + unknown("option", key, keys))

    def steps(self) -> int:
        """The argument as a number of steps, from 1."""
        if not self.argument.isdecimal() or int(self.argument) < 1:
            raise self.wrong("H must be a whole number of steps from 1", f"Write --sync {self.name}:8.")
        return int(self.argument)

    def whole(self, key: str, default: int, least: int = 1) -> int:
        """An option as a whole number."""
        text = self.options.get(key, str(default))
        if not text.isdecimal() or int(text) < least:
            raise self.wrong(f"{key} must be a whole number from {least}", f"Write {key}={max(default, least)}.")
        return int(text)

    def number(self, key: str, default: float, *, below: float) -> float:
        """An option as a number above 0 and below a bound."""
        text = self.options.get(key, str(default))
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 < value < below:
            raise self.wrong(f"{key} must be a number above 0 and below {below:g}", f"Write {key}={default:g}.")
        return value

    def choice(self, key: str, allowed: Sequence[str]) -> str:
        """An option out of a few; the first is what it is if nothing is said."""
        value = self.options.get(key, allowed[0])
        if value not in allowed:
            raise ConfigError(f"sync '{self.text}': {unknown(key, value, allowed)}")
        return value


def _parts(body: str) -> list[str]:
    """What stands between commas; `key=value` belongs to what stands before it."""
    parts: list[str] = []
    for piece in body.split(","):
        if parts and "=" in piece.partition("+")[0]:
            parts[-1] += "," + piece
        else:
            parts.append(piece)
    return parts
