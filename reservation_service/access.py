"""Who calls, and what they may do. Pure.

A scope is what a key was made for. `operate` has everything that `reserve` has. Where no key is
required everybody has both scopes, but nobody is authenticated.
"""

from enum import StrEnum

from msgspec import Struct


class Scope(StrEnum):
    """`reserve`: a hold's own calls. `operate`: what touches everybody's holds, too."""

    RESERVE = "reserve"
    OPERATE = "operate"


SCOPES = {
    Scope.RESERVE: (Scope.RESERVE,),
    Scope.OPERATE: (Scope.RESERVE, Scope.OPERATE),
}
"""What a key of each scope may do."""


class Caller(Struct, frozen=True):
    """Who makes a request; `name` is that of its key, None without one."""

    name: str | None
    scopes: tuple[Scope, ...]

    @property
    def is_operator(self) -> bool:
        """Authenticated, and for everything."""
        return self.name is not None and Scope.OPERATE in self.scopes


EVERYBODY = Caller(None, SCOPES[Scope.OPERATE])
"""Any caller where no key is required."""

VISITOR = Caller(None, ())
"""A caller without a key where keys are required: may do what is public."""
