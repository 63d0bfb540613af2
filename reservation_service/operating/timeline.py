"""`list` and `show`: reservations as rows, and the history of one as a timeline."""

from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reservation_service.clock import utc_text
from reservation_service.operating.remote import NotServed, Remote

PAGE_MAX = 500
"""What one page of either log or list may have."""

_MS_PER_SECOND = 1000

Document = dict[str, Any]


async def find(
    remote: Remote, limit: int, status: str | None = None, id_prefix: str = ""
) -> Document:
    """Up to `limit` reservations in the order of their deadlines. Raises RemoteError."""
    items: list[Document] = []
    query: dict[str, str | int] = {"idPrefix": id_prefix} if id_prefix else {}
    if status is not None:
        query["status"] = status
    while True:
        query["limit"] = min(limit - len(items), PAGE_MAX)
        page = await remote.document("/reservations", query)
        items += page["items"]
        if page["nextCursor"] is None or len(items) >= limit:
            return {"items": items, "nextCursor": page["nextCursor"]}
        query["cursor"] = page["nextCursor"]


async def history(remote: Remote, reservation_id: str) -> Document:
    """The row, and its events as far back as the log goes; None where no log is served."""
    path = f"/reservations/{quote(reservation_id, safe='')}"
    row = await remote.document(path)
    events: list[Document] | None = []
    after = 0
    while events is not None:
        query = {"after": after, "limit": PAGE_MAX}
        try:
            page = await remote.document(f"{path}/events", query)
        except NotServed:
            events = None
            break
        events += page["items"]
        if len(page["items"]) < PAGE_MAX:
            break
        after = page["nextAfter"]
    return {"reservation": row, "events": events}


def show_list(found: Document, now_ms: int, console: Console) -> None:
    """For people: a row for each."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("ID", "status", "deadline", "", "generation", "retries"):
        table.add_column(heading, justify="right" if heading in _NUMBERS else "left")
    for row in found["items"]:
        table.add_row(
            Text(row["reservationId"]),
            _status(row),
            moment(row["expiresAt"]),
            distance(row["expiresAt"], now_ms),
            str(row["generation"]),
            f"{row['alarmRetryCount']}{' stuck' if row['alarmStuck'] else ''}",
        )
    console.print(table)
    if found["nextCursor"] is not None:
        console.print("There are more; see --limit.", style="dim")


def show_history(told: Document, now_ms: int, console: Console) -> None:
    """For people: what is, what was, and what is planned."""
    row = told["reservation"]
    console.print(
        Text.assemble((row["reservationId"], "bold"), " is ", _status(row)), soft_wrap=True
    )
    for event in told["events"] or ():
        kind = event["type"], _STYLES.get(event["type"], "")
        by, generation = f"by {event['trigger']}", f"generation {event['generation']}"
        line = _line(event["at"], kind, by, generation, _told(event["data"]))
        console.print(line, soft_wrap=True)
    if row["alarmAt"] is not None:
        tries = f"{row['alarmRetryCount']} retries so far" if row["alarmRetryCount"] else ""
        when = distance(row["alarmAt"], now_ms)
        console.print(_line(row["alarmAt"], ("alarm", "dim"), when, tries), soft_wrap=True)
    if told["events"] is None:
        console.print("This service does not tell its history.", style="dim")
    elif row["generation"] and not told["events"]:
        console.print("Its events are older than the log.", style="dim")


def _line(at_ms: int, kind: tuple[str, str], by: str, *details: str) -> Text:
    """What was or will be, in columns; a long one is for the terminal to break."""
    name, style = kind
    line = Text.assemble(f"{moment(at_ms)}  ", (f"{name:<16}", style), f"  {by:<10}")
    return line.append("  " + "  ".join(filter(None, details)))


def moment(at_ms: int | None) -> str:
    """A time for people, to the millisecond."""
    if at_ms is None:
        return ""
    return f"{utc_text(at_ms).removesuffix(' UTC')}.{at_ms % _MS_PER_SECOND:03} UTC"


def distance(at_ms: int | None, now_ms: int) -> str:
    """How far away that is, in seconds."""
    if at_ms is None:
        return ""
    away = (at_ms - now_ms) / _MS_PER_SECOND
    return f"in {away:,.0f} s" if away >= 0 else f"{-away:,.0f} s ago"


def event_line(event: Document) -> str:
    """One event on one line."""
    told = f" {_told(event['data'])}" if event["data"] is not None else ""
    what = f"{event['reservation']} {event['type']} by {event['trigger']}"
    return f"{moment(event['at'])} {what}, generation {event['generation']}{told}"


def _status(row: Document) -> Text:
    text = Text(row["status"], style=_STYLES.get(row["status"], ""))
    return text.append(", its alarm is stuck", style="red") if row["alarmStuck"] else text


def _told(data: Any) -> str:
    if not isinstance(data, dict):
        return ""
    return " ".join(f"{name}={value!a}" for name, value in data.items())


_NUMBERS = {"generation", "retries"}
_STYLES = {
    "held": "yellow",
    "confirmed": "green",
    "released": "dim",
    "expired": "cyan",
    "alarm-failed": "red",
    "confirm-rejected": "red",
}
