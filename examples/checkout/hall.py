"""The hall: which seats there are, and which reservation each of them is."""

from typing import Any

ROWS = "ABCDEF"
SEATS_PER_ROW = 8
PRICE_CENTS = 2_400
CURRENCY = "EUR"


def reservation_of(row: str, number: int) -> str:
    """The reservation ID of a seat."""
    return f"hall-{row.lower()}{number}"


NUMBERS = range(1, SEATS_PER_ROW + 1)
SEATS = frozenset(reservation_of(row, number) for row in ROWS for number in NUMBERS)


def rows() -> list[dict[str, Any]]:
    """The seats as the page draws them, from the stage to the back."""
    return [
        {"name": row, "seats": [{"id": reservation_of(row, n), "number": n} for n in NUMBERS]}
        for row in ROWS
    ]
