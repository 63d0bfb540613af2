"""What the audience sees: lines with their time, lanes that grow, the promises, the verdict.

On a terminal the lanes are live; elsewhere there are plain lines, and the same table at the end.
"""

from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reservation_service.clock import monotonic_s

PLAIN_WIDTH = 100
LABEL_WIDTH = 20
SCALES_S = (0.25, 0.5, 1.0)
LANES = ("server", "demo-short", "demo-long", "demo-replay", "demo-tick", "demo-failing")


class Look(Enum):
    """How a moment of a lane is drawn: the glyph, another for ASCII terminals, the style."""

    NOTHING = " ", " ", ""
    UP = "━", "=", "green"
    KILLED = "✗", "X", "bold red"
    DOWN = "·", ".", "dim"
    HELD = "█", "#", "cyan"
    OVERDUE = "▒", "%", "yellow"
    FAILED = "!", "!", "bold red"
    EXPIRED = "○", "o", "green"


@dataclass(frozen=True, slots=True)
class Promise:
    """What was promised, whether it was kept, and what was seen."""

    name: str
    kept: bool
    seen: str


@dataclass(slots=True)
class Lane:
    """What something looked like from which second on; the future may be written already."""

    changes: list[tuple[float, Look]] = field(default_factory=list)

    def look(self, since: float, until: float) -> Look:
        """The last thing that began before `until`; a kill is seen even if it was short."""
        begun = [(at, look) for at, look in self.changes if at < until]
        if any(look is Look.KILLED for at, look in begun if at >= since):
            return Look.KILLED
        return begun[-1][1] if begun else Look.NOTHING


class Stage:
    """A context: the lanes are live inside it, `verdict` comes after it."""

    def __init__(self, console: Console) -> None:
        if not console.is_terminal:
            console.width = PLAIN_WIDTH
        self.promises: list[Promise] = []
        self._console = console
        self._started_s = monotonic_s()
        self._lanes = {name: Lane() for name in LANES}
        self._live = Live(
            console=console,
            get_renderable=self._render,
            refresh_per_second=8,
            redirect_stdout=False,
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def say(self, text: str, style: str = "") -> None:
        """A line of the story, with the second it happened in."""
        line = Text.assemble((f"{self._now_s():5.1f} s  ", "dim"), (text, style))
        self._console.print(line, soft_wrap=True)

    def act(self, title: str) -> None:
        self._console.print()
        self.say(title, "bold")

    def show(self, lane: str, look: Look, in_s: float = 0.0) -> None:
        """The lane looks like this from now on, or from `in_s` seconds on."""
        changes = self._lanes[lane].changes
        at = self._now_s() + in_s
        changes[:] = [change for change in changes if change[0] <= at] + [(at, look)]

    def promise(self, name: str, kept: bool, seen: str) -> None:
        """Note whether a promise was kept."""
        self.promises.append(Promise(name, kept, seen))
        self.say(f"{'kept' if kept else 'BROKEN'}: {name} ({seen})", "green" if kept else "red")

    def verdict(self) -> int:
        """The table of promises and the last line; the exit status, 0 only if all were kept."""
        kept = sum(promise.kept for promise in self.promises)
        everything = bool(self.promises) and kept == len(self.promises)
        self._console.print()
        self._console.print(self._table())
        text = "Every promise was kept" if everything else "NOT every promise was kept"
        line = f"{text}: {kept} of {len(self.promises)}, in {self._now_s():.1f} s"
        self._console.print(line, style="bold green" if everything else "bold red")
        return 0 if everything else 1

    def _now_s(self) -> float:
        return monotonic_s() - self._started_s

    def _table(self) -> Table:
        table = Table("promise", "what was seen", "", expand=False)
        for promise in self.promises:
            mark = Text("kept", "green") if promise.kept else Text("BROKEN", "bold red")
            table.add_row(promise.name, promise.seen, mark)
        return table

    def _render(self) -> Table:
        lanes = Table.grid(padding=(0, 2))
        cell_s = self._cell_s()
        for name, lane in self._lanes.items():
            lanes.add_row(Text(name, "dim"), self._draw(lane, cell_s))
        return lanes

    def _cell_s(self) -> float:
        """The finest scale at which the lanes still fit beside their names."""
        room = self._console.width - LABEL_WIDTH
        return next((cell_s for cell_s in SCALES_S if self._now_s() < room * cell_s), SCALES_S[-1])

    def _draw(self, lane: Lane, cell_s: float) -> Text:
        now_s, drawn = self._now_s(), Text(no_wrap=True)
        for cell in range(int(now_s / cell_s) + 1):
            look = lane.look(cell * cell_s, min((cell + 1) * cell_s, now_s))
            glyph, ascii_glyph, style = look.value
            drawn.append(ascii_glyph if self._console.options.ascii_only else glyph, style)
        return drawn
