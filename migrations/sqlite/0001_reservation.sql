-- One row per reservation ID with its one alarm slot, and the log of what happened to it.
-- The CHECKs hold in every reachable state; SQLite cannot change them later, so all four
-- statuses are here from the start.

CREATE TABLE reservation (
    id TEXT PRIMARY KEY NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('held', 'confirmed', 'released', 'expired')),
    -- SHA-256 of the holder's secret, empty for the anonymous holder
    holder BLOB NOT NULL CHECK (length(holder) IN (0, 32)),
    generation INTEGER NOT NULL,
    -- times are epoch milliseconds of service time
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    expired_at INTEGER,
    confirmed_at INTEGER,
    released_at INTEGER,
    expiration_count INTEGER NOT NULL,
    -- the slot: what was asked for, when it is tried next, how often it was, and by whom now
    alarm_at INTEGER,
    alarm_dispatch_at INTEGER,
    alarm_attempts INTEGER NOT NULL,
    alarm_claim INTEGER,
    -- the transaction that changed the row last, and what made it do so
    batch INTEGER NOT NULL,
    changed_by TEXT NOT NULL CHECK (changed_by IN ('request', 'alarm', 'replay')),

    CHECK (generation >= 1),
    CHECK (created_at < expires_at),
    CHECK (expiration_count IN (0, 1)),
    CHECK ((expiration_count = 1) = (expired_at IS NOT NULL)),
    CHECK (status <> 'expired' OR expiration_count = 1),
    CHECK (status <> 'held' OR expiration_count = 0),
    CHECK (status <> 'confirmed' OR confirmed_at IS NOT NULL),
    CHECK (status NOT IN ('held', 'expired') OR confirmed_at IS NULL),
    CHECK ((status = 'released') = (released_at IS NOT NULL)),
    CHECK (status <> 'held' OR (alarm_at IS NOT NULL AND alarm_at <= expires_at)),
    CHECK (status IN ('held', 'confirmed') OR alarm_at IS NULL),
    CHECK ((alarm_at IS NULL) = (alarm_dispatch_at IS NULL)),
    CHECK (alarm_dispatch_at >= alarm_at),
    CHECK (alarm_attempts >= 0),
    CHECK (alarm_attempts > 0 OR alarm_dispatch_at IS alarm_at),
    CHECK (alarm_attempts = 0 OR alarm_at IS NOT NULL),
    CHECK (alarm_claim IS NULL OR alarm_attempts > 0)
) STRICT;

-- due times, leases and backoffs alike: its head is the next thing to do
CREATE INDEX reservation_due ON reservation (alarm_dispatch_at)
    WHERE alarm_dispatch_at IS NOT NULL;

-- what a start has to look at: attempts that were cut short, and backoffs
CREATE INDEX reservation_attempted ON reservation (id) WHERE alarm_attempts > 0;

CREATE TABLE event (
    -- AUTOINCREMENT: numbers are never given out again, not even after a purge
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    reservation TEXT NOT NULL,
    generation INTEGER NOT NULL,
    type TEXT NOT NULL,
    at INTEGER NOT NULL,
    "trigger" TEXT NOT NULL CHECK ("trigger" IN ('request', 'alarm', 'replay')),
    data TEXT
) STRICT;

-- a second defence behind the expiry's own guard: one expiry per generation
CREATE UNIQUE INDEX event_expired_once ON event (reservation, generation) WHERE type = 'expired';

CREATE TABLE namespace (
    singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
    -- raised at every start: makes batch numbers and claim tokens unique across restarts
    epoch INTEGER NOT NULL,
    -- the tombstone: set once everything was deleted on purpose
    destroyed_at INTEGER
) STRICT;

INSERT INTO namespace (singleton, epoch) VALUES (1, 0);
