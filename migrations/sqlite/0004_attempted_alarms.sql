-- How many alarms are stuck is asked again and again: it must not cost more the more of them fail.

-- what a start has to look at, attempts that were cut short and backoffs; and what is stuck, at its end
DROP INDEX reservation_attempted;
CREATE INDEX reservation_attempted ON reservation (alarm_attempts) WHERE alarm_attempts > 0;
