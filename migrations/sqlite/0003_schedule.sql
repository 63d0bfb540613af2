-- Planned events: many for one reservation, all on its one alarm slot.

CREATE TABLE schedule (
    -- AUTOINCREMENT: a plan that was replaced has another number, and nothing is fired by an old one
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    reservation TEXT NOT NULL,
    event_id TEXT NOT NULL,
    -- the hold that it was planned on: on another one it is silent
    generation INTEGER NOT NULL,
    -- the next occurrence, and the first one as it was asked for: a repeated call finds its work done
    run_at INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    repeat_ms INTEGER,
    -- JSON of the client's own
    data TEXT,

    CHECK (generation >= 1),
    CHECK (run_at >= 1),
    CHECK (run_at >= first_at),
    CHECK (repeat_ms >= 1),
    CHECK (repeat_ms IS NOT NULL OR run_at = first_at),
    UNIQUE (reservation, event_id)
) STRICT;

-- the earliest of a hold's planned events: what the slot is set to
CREATE INDEX schedule_planned ON schedule (reservation, generation, run_at);

-- which occurrence of which plan was recorded; the second defence behind the firing's own guard
ALTER TABLE event ADD COLUMN planned INTEGER;
ALTER TABLE event ADD COLUMN run_at INTEGER;
CREATE UNIQUE INDEX event_fired_once ON event (planned, run_at) WHERE planned IS NOT NULL;
