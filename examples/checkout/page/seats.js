// What a row of the service means to somebody who looks at the hall. The deadline is the truth: at
// expiresAt a hold is over, whether or not its alarm has run.

/**
 * "free"; "held" by somebody else; "sold"; and of this tab "mine", "late" when its time is up and
 * nobody has come since, "bought".
 */
export function stateOf(row, session, now) {
  if (row.status === "confirmed") return session.hasBought(row.reservationId) ? "bought" : "sold";
  const own = isOwn(row, session.held);
  if (isLive(row, now)) return own ? "mine" : "held";
  return own ? "late" : "free";
}

export function isLive(row, now) {
  return row.status === "held" && now < row.expiresAt;
}

/** Whether the row is still the hold that this tab has made, be it over or not. */
export function isOwn(row, held) {
  return held?.seat === row.reservationId && held.generation === row.generation;
}

export function leftMs(row, now) {
  return Math.max(0, row.expiresAt - now);
}

/** How much of the hold's time is left, 1 at its start. */
export function leftShare(row, now) {
  return Math.min(1, leftMs(row, now) / (row.expiresAt - row.createdAt));
}

/** 119001 is "2:00": a second counts as long as anything of it is left. */
export function minutes(ms) {
  const seconds = Math.ceil(ms / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** The same where there is little room: whole minutes while there are many. */
export function short(ms) {
  return ms < 600_000 ? minutes(ms) : `${Math.ceil(ms / 60_000)}′`;
}
