-- What a booking front end reads beside one reservation: lists, a holder's holds, rejected payments.

-- the operator's list, and what is old enough to be removed
CREATE INDEX reservation_list ON reservation (expires_at, id);

-- a named holder's live holds: their number is limited
CREATE INDEX reservation_holder ON reservation (holder, expires_at)
    WHERE status = 'held' AND holder <> x'';

-- one reservation's history; a row stays while any of it is left
CREATE INDEX event_reservation ON event (reservation);

-- a confirmation that came too late is recorded once per hold, holder and reason
CREATE TABLE confirm_rejection (
    reservation TEXT NOT NULL,
    generation INTEGER NOT NULL,
    holder BLOB NOT NULL,
    code TEXT NOT NULL,
    PRIMARY KEY (reservation, generation, holder, code)
) STRICT, WITHOUT ROWID;
