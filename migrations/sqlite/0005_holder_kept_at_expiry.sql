-- A holder's digest is random, so each change of its index writes another page. An expiry, of which
-- a burst has thousands, leaves it alone: what is over is found by its deadline.

-- a named holder's holds that did not end otherwise than by their deadline: their number is limited
DROP INDEX reservation_holder;
CREATE INDEX reservation_holder ON reservation (holder, expires_at)
    WHERE confirmed_at IS NULL AND released_at IS NULL AND holder <> x'';
