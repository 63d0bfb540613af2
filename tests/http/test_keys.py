"""Who may make which call: keys, scopes, public calls, and what strangers are told."""

from pathlib import Path

import pytest
from aiohttp import web

from reservation_service.access import Caller
from reservation_service.keys.key_file import KeyFile
from reservation_service.web.guard import ACCESS, Access, Doorkeeper, shown_path
from tests.conftest import StartService
from tests.http.answers import assert_problem
from tests.http.bookings import bring
from tests.http.callers import CALLS, FEED, LIST, Call, bearer, make, new_key
from tests.support.harness import Answer, ServiceHarness
from tests.support.recorder import Recorder
from tests.support.rows import row

PUBLIC: dict[str, object] = {"public": True}
NONE: dict[str, object] = {"mode": "none"}
UNKNOWN = "rsk_" + "A" * 43

REFUSALS = {
    "key-required": 401,
    "unknown-key": 401,
    "insufficient-scope": 403,
}


def refusal(answer: Answer) -> str | None:
    """The code with which the doorkeeper refused, None when it let the caller in."""
    if "json" not in answer.headers["Content-Type"] or answer.json.get("code") not in REFUSALS:
        return None
    code = answer.json["code"]
    assert_problem(answer, REFUSALS[code], code)
    assert answer.headers.get("WWW-Authenticate") == ("Bearer" if answer.status == 401 else None)
    return str(code)


def expected(access: Access, who: str, *, public: bool) -> str | None:
    if access in {Access.PROBE, Access.OPEN}:
        return None
    if who == "unknown":
        return "unknown-key"
    if who == "nobody":
        return None if access is Access.PUBLIC and public else "key-required"
    return "insufficient-scope" if (access, who) == (Access.OPERATE, "reserve") else None


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("public", [False, True])
async def test_every_route_asks_for_what_the_table_says(
    start_service: StartService, database: Path, name: str, public: bool
) -> None:
    tokens = {scope: new_key(database, scope) for scope in ("reserve", "operate")}
    service = await start_service(auth={"public": public})
    for who in ("nobody", "unknown", "reserve", "operate"):
        token = {"nobody": None, "unknown": UNKNOWN}.get(who, tokens.get(who))
        answer = await make(service, CALLS[name], token)
        if name == "GET /whoami" and who == "unknown":
            assert_problem(answer, 401, "unknown-key")
        else:
            assert refusal(answer) == expected(ACCESS[name], who, public=public), who


async def test_every_route_that_is_served_is_called_here(
    start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    protect, served = Doorkeeper.protect, set[str]()

    def watched(doorkeeper: Doorkeeper, routes: list[web.RouteDef]) -> list[web.RouteDef]:
        served.update(f"{route.method} {shown_path(route.path)}" for route in routes)
        return protect(doorkeeper, routes)

    monkeypatch.setattr(Doorkeeper, "protect", watched)
    await start_service()
    assert served == CALLS.keys()


def test_a_route_that_nobody_gave_an_access_is_not_served() -> None:
    async def forgotten(request: web.Request) -> web.Response:
        return web.Response()

    keys: dict[str, Caller] = {}
    doorkeeper = Doorkeeper(keys.get, lambda: False)
    with pytest.raises(KeyError, match="GET /forgotten"):
        doorkeeper.protect([web.get("/forgotten", forgotten)])


@pytest.mark.parametrize("call", [LIST, FEED])
@pytest.mark.parametrize("public", [False, True])
async def test_what_is_about_all_is_for_operators_also_where_much_is_public(
    start_service: StartService, database: Path, public: bool, call: Call
) -> None:
    reserve, operate = (new_key(database, scope) for scope in ("reserve", "operate"))
    service = await start_service(auth={"public": public})
    assert refusal(await make(service, call)) == "key-required"
    assert refusal(await make(service, call, UNKNOWN)) == "unknown-key"
    assert refusal(await make(service, call, reserve)) == "insufficient-scope"
    assert (await make(service, call, operate)).status == 200


async def test_a_stream_of_all_is_for_operators_and_one_of_some_for_everybody_where_public(
    start_service: StartService, database: Path
) -> None:
    token = new_key(database, "operate")
    service = await start_service(auth=PUBLIC)
    stream = {"Accept": "text/event-stream"}
    assert refusal(await service.request("GET", "/events", headers=stream)) == "key-required"
    async with service.follow("/events?reservation=seat-1") as some:
        assert some.response.status == 200
    async with service.follow("/events", key=token) as everything:
        assert everything.response.status == 200


@pytest.mark.parametrize("settings", [{}, NONE])
async def test_where_no_key_is_required_everybody_may_make_every_call(
    start_service: StartService, settings: dict[str, object]
) -> None:
    service = await start_service(auth=settings)
    for call in [*CALLS.values(), LIST, FEED]:
        answer = await make(service, call)
        assert answer.status in {200, 201} or answer.json["code"] == "hold-released", call
        if call.path != "/whoami":
            with_a_key = await make(service, call, UNKNOWN)
            assert with_a_key.status in {200, 201} or refusal(with_a_key) is None


@pytest.mark.parametrize(
    "header",
    ["bearer {}", "BEARER {}", "Bearer  {}", "Bearer {} "],
)
async def test_a_key_is_known_however_its_scheme_is_spelt(
    start_service: StartService, database: Path, header: str
) -> None:
    token = new_key(database, "operate")
    service = await start_service()
    given = {"Authorization": header.format(token)}
    assert (await service.request("GET", LIST.path, headers=given)).status == 200


@pytest.mark.parametrize(
    "header",
    ["Basic {}", "{}", "Bearer", "Bearer ", "Bearer {}x", "Bearer x{}", "Bearer {} {}", "Token {}"],
)
async def test_what_is_not_exactly_a_key_is_refused(
    start_service: StartService, database: Path, header: str
) -> None:
    token = new_key(database, "operate")
    service = await start_service(auth=PUBLIC)
    given = {"Authorization": header.format(token, token)}
    answer = await service.request("GET", "/reservations/seat-1", headers=given)
    assert refusal(answer) == "unknown-key"


async def test_bytes_that_are_no_text_are_no_key(
    start_service: StartService, database: Path
) -> None:
    new_key(database, "operate")
    service = await start_service()
    given = {"Authorization": "Bearer \udcff\udc80"}
    answer = await service.request("GET", "/reservations/seat-1", headers=given)
    assert refusal(answer) == "unknown-key"


async def test_of_two_authorizations_the_first_counts_and_neither_adds_to_the_other(
    start_service: StartService, database: Path
) -> None:
    new_key(database, "operate")
    reserve = new_key(database, "reserve")
    service = await start_service()
    answer = await service.request(
        "GET", LIST.path, headers=[*bearer(reserve).items(), *bearer(UNKNOWN).items()]
    )
    assert refusal(answer) == "insufficient-scope"


# The order of the checks


@pytest.mark.parametrize(
    ("call", "status"),
    [
        (Call("GET", "/nowhere"), 404),
        (Call("DELETE", "/reservations/seat-1"), 405),
        (Call("GET", "/reservations/seat-1/confirm"), 405),
    ],
)
async def test_path_and_method_are_checked_before_the_key(
    start_service: StartService, database: Path, call: Call, status: int
) -> None:
    new_key(database, "operate")
    service = await start_service()
    assert (await make(service, call)).status == status


@pytest.mark.parametrize("path", ["/reservations/X", "/reservations/seat-1", "/reservations?id=X"])
async def test_the_key_is_checked_before_everything_else(
    start_service: StartService, database: Path, path: str
) -> None:
    new_key(database, "operate")
    service = await start_service()
    assert refusal(await service.get(path)) == "key-required"
    for verb in ("", "/extend", "/confirm", "/release", "/replay-alarm"):
        if "?" not in path:
            answer = await service.request("POST", path + verb, data=b"x" * 20_000)
            assert refusal(answer) == "key-required"


# What strangers are told


async def test_without_a_key_every_reservation_looks_the_same(
    start_service: StartService, database: Path
) -> None:
    token = new_key(database, "operate")
    service = await start_service()
    hold = Call("POST", "/reservations/seat-1", {"ttlSeconds": 60, "holder": "alice"})
    assert (await make(service, hold, token)).status == 201
    for suffix in ("", "/extend", "/confirm", "/release", "/replay-alarm"):
        answers = [
            await make(service, Call("POST", f"/reservations/{name}{suffix}", {}))
            for name in ("seat-1", "seat-2", "-")
        ]
        assert len({(answer.status, answer.body) for answer in answers}) == 1


async def test_a_closed_replay_looks_like_a_path_that_never_was(
    start_service: StartService,
) -> None:
    service = await start_service(reservations={"replay_alarm": False})
    await bring(service, "held", "alice", ["seat-1"])
    for name in ("seat-1", "seat-2", "-"):
        answer = await make(service, Call("POST", f"/reservations/{name}/replay-alarm", {"now": 1}))
        assert_problem(answer, 404, "not-found", "There is nothing at this path.")
    assert row(service.database, "seat-1")["status"] == "held"


async def test_a_hold_protects_itself_where_holding_is_public(
    start_service: StartService, database: Path
) -> None:
    reserve = new_key(database, "reserve")
    service = await start_service(auth=PUBLIC)
    mine, other = {"holder": "alice"}, {"holder": "mallory"}
    held = await make(service, Call("POST", "/reservations/seat-1", mine | {"ttlSeconds": 60}))
    assert held.status == 201
    for verb, body in (("/release", other), ("/extend", other | {"ttlSeconds": 90})):
        answer = await make(service, Call("POST", f"/reservations/seat-1{verb}", body))
        assert_problem(answer, 403, "not-your-hold")
    confirm = Call("POST", "/reservations/seat-1/confirm", mine)
    assert refusal(await make(service, confirm)) == "key-required"
    assert row(service.database, "seat-1")["status"] == "held"
    assert (await make(service, confirm, reserve)).json["status"] == "confirmed"


# Releasing what is confirmed


async def confirmed(service: ServiceHarness, token: str | None) -> None:
    for verb, body in (("", {"ttlSeconds": 60}), ("/confirm", {})):
        call = Call("POST", f"/reservations/seat-1{verb}", body)
        assert (await make(service, call, token)).status in {200, 201}


RELEASE = CALLS["POST /reservations/{id}/release"]


@pytest.mark.parametrize("settings", [{}, NONE, PUBLIC])
async def test_what_is_confirmed_is_released_by_an_operators_own_key_alone(
    start_service: StartService, database: Path, settings: dict[str, object]
) -> None:
    reserve, operate = (new_key(database, scope) for scope in ("reserve", "operate"))
    service = await start_service(auth=settings)
    await confirmed(service, reserve)
    for token in (None, reserve, UNKNOWN):
        answer = await make(service, RELEASE, token)
        assert answer.status in {401, 409}
        assert row(service.database, "seat-1")["status"] == "confirmed"
    answer = await make(service, RELEASE, operate)
    assert (answer.status, answer.json["changed"]) == (200, True)
    assert row(service.database, "seat-1")["status"] == "released"


async def test_without_any_keys_nobody_releases_what_is_confirmed(service: ServiceHarness) -> None:
    await confirmed(service, None)
    for token in (None, UNKNOWN):
        assert_problem(await make(service, RELEASE, token), 409, "already-confirmed")


SHOW, PLAN, CANCEL = (
    CALLS[f"{call} /reservations/{{id}}/schedule{suffix}"]
    for call, suffix in (("GET", ""), ("PUT", "/{eventId}"), ("DELETE", "/{eventId}"))
)


async def test_the_schedule_of_somebody_else_is_for_operators_alone(
    start_service: StartService, database: Path
) -> None:
    reserve, operate = (new_key(database, scope) for scope in ("reserve", "operate"))
    service = await start_service()
    held = Call("POST", "/reservations/seat-1", {"ttlSeconds": 60, "holder": "alice-4711"})
    assert (await make(service, held, reserve)).status == 201
    for call in (SHOW, PLAN, CANCEL):
        assert_problem(await make(service, call, reserve), 403, "not-your-hold")
    assert (await make(service, PLAN, operate)).status == 201
    (planned,) = (await make(service, SHOW, operate)).json["items"]
    assert planned["eventId"] == "reminder"
    assert_problem(await make(service, CANCEL, reserve), 403, "not-your-hold")
    assert (await make(service, CANCEL, operate)).json["changed"] is True
    assert_problem(await make(service, CANCEL, operate), 404, "no-event")
    assert (await make(service, SHOW, operate)).json["items"] == []


# whoami


def identity(name: str | None, *scopes: str) -> dict[str, object]:
    known = name is not None
    return {
        "authenticated": known,
        "loggedIn": known,
        "name": name,
        "scopes": list(scopes),
        "authType": "bearer" if known else None,
    }


WHOAMI = CALLS["GET /whoami"]


@pytest.mark.parametrize("settings", [{}, NONE, PUBLIC])
async def test_whoami_tells_what_a_key_is_good_for(
    start_service: StartService, database: Path, settings: dict[str, object]
) -> None:
    reserve = new_key(database, "reserve", "shop")
    operate = new_key(database, "operate", "staff")
    service = await start_service(auth=settings)
    assert (await make(service, WHOAMI, reserve)).json == identity("shop", "reserve")
    assert (await make(service, WHOAMI, operate)).json == identity("staff", "reserve", "operate")
    assert_problem(await make(service, WHOAMI, UNKNOWN), 401, "unknown-key")
    nobody = identity(None, "reserve", "operate") if settings == NONE else identity(None)
    assert (await make(service, WHOAMI)).json == nobody


async def test_whoami_without_any_keys(service: ServiceHarness) -> None:
    assert (await make(service, WHOAMI)).json == identity(None, "reserve", "operate")


# Keys that change while the service runs


async def test_the_first_key_closes_the_door(
    service: ServiceHarness, database: Path, recorder: Recorder
) -> None:
    read = CALLS["GET /reservations/{id}"]
    assert (await make(service, read)).status == 200
    token = new_key(database, "reserve")
    await recorder.seen("keys-loaded", keys=1)
    assert refusal(await make(service, read)) == "key-required"
    assert (await make(service, read, token)).status == 200


async def test_a_revoked_key_is_unknown_and_the_last_one_leaves_the_door_closed(
    start_service: StartService, database: Path, recorder: Recorder
) -> None:
    token = new_key(database, "reserve", "shop")
    service = await start_service()
    read = CALLS["GET /reservations/{id}"]
    assert (await make(service, read, token)).status == 200
    KeyFile(database).revoke("shop")
    await recorder.seen("keys-loaded", keys=0)
    assert refusal(await make(service, read, token)) == "unknown-key"
    assert refusal(await make(service, read)) == "key-required"
    assert_problem(await make(service, WHOAMI, token), 401, "unknown-key")


@pytest.mark.parametrize("damage", ["torn", "empty", "other", "gone", "directory"])
async def test_what_is_no_key_file_leaves_the_old_keys_in_force(
    start_service: StartService, database: Path, recorder: Recorder, damage: str
) -> None:
    token = new_key(database, "reserve")
    service = await start_service()
    path = KeyFile(database).path
    before = path.read_bytes()
    path.unlink()
    if damage == "directory":
        path.mkdir()
    elif damage != "gone":
        texts = {"torn": before[:-20], "empty": b"", "other": b'{"keys":[{"name":"x"}]}'}
        path.write_bytes(texts[damage])
    (told,) = await recorder.seen("keys-refused")
    assert str(path) in told["reason"]
    assert token not in told["reason"]
    read = CALLS["GET /reservations/{id}"]
    assert (await make(service, read, token)).status == 200
    assert refusal(await make(service, read)) == "key-required"

    if damage == "directory":
        path.rmdir()
    path.unlink(missing_ok=True)
    other = new_key(database, "reserve", "other")
    await recorder.seen("keys-loaded", count=2)
    assert (await make(service, read, other)).status == 200
    assert refusal(await make(service, read, token)) == "unknown-key"
    assert len(recorder.of("keys-refused")) <= 2  # the second is the moment without any file
