// The reservation service as a browser calls it: the seats, and hold, extend, release. It does not
// confirm: whether something is paid is for the shop's own server to say.

const TIMEOUT_MS = 4000;
const PAUSES_MS = [300, 1200];

/** The service said no: the message is its own sentence, reservation the row that stood in the way. */
export class Refusal extends Error {
  constructor(problem, retryAfter) {
    super(problem.detail);
    this.code = problem.code;
    this.reservation = problem.reservation;
    this.retryAfterSeconds = Number(retryAfter) || null;
  }
}

/** No answer in time, or none to this page. What was asked for may have happened all the same. */
export class Unreachable extends Error {
  constructor(sentence) {
    super(sentence ?? "There is no answer. Please try again.");
    this.isSilent = sentence === undefined;
  }
}

export class ReservationService {
  #url;
  #clock;

  constructor(url, clock) {
    this.#url = url;
    this.#clock = clock;
  }

  /** All seats in one call. */
  async seats(ids, signal) {
    const query = new URLSearchParams(ids.map((id) => ["id", id]));
    const answer = await this.#fetch(`/reservations?${query}`, { signal });
    return answer.items;
  }

  /** What happens to these seats from now on. A browser that loses it comes again by itself. */
  events(ids) {
    const named = ids.map((id) => ["reservation", id]);
    const query = new URLSearchParams([["after", "latest"], ...named]);
    return new EventSource(`${this.#url}/events?${query}`);
  }

  /** Also renews one's own hold. */
  hold(id, holder, ttlSeconds) {
    return this.#change(id, "", { holder, ttlSeconds });
  }

  extend(id, holder, generation, ttlSeconds) {
    return this.#change(id, "/extend", { holder, generation, ttlSeconds });
  }

  release(id, holder, generation) {
    return this.#change(id, "/release", { holder, generation });
  }

  /** Whether the service is there and only refuses to talk to pages of this origin. */
  async isOnlyClosedToUs() {
    try {
      await fetch(this.#url, { mode: "no-cors", signal: AbortSignal.timeout(TIMEOUT_MS) });
      return true;
    } catch {
      return false;
    }
  }

  /** Every call may be repeated with the same holder, so one that got lost simply is. */
  async #change(id, action, body) {
    const request = {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    };
    for (const pause of PAUSES_MS) {
      try {
        return await this.#fetch(`/reservations/${id}${action}`, request);
      } catch (error) {
        if (!(error instanceof Unreachable)) throw error;
        await new Promise((resume) => setTimeout(resume, pause));
      }
    }
    return this.#fetch(`/reservations/${id}${action}`, request);
  }

  async #fetch(path, { signal, ...request } = {}) {
    const signals = [signal, AbortSignal.timeout(TIMEOUT_MS)].filter(Boolean);
    const sentAt = performance.now();
    try {
      const answer = await fetch(this.#url + path, { ...request, signal: AbortSignal.any(signals) });
      this.#learn(answer, sentAt);
      return await read(answer);
    } catch (error) {
      signal?.throwIfAborted();
      throw error instanceof Refusal || error instanceof Unreachable ? error : new Unreachable();
    }
  }

  #learn(answer, sentAt) {
    const serverTime = Number(answer.headers.get("Server-Time"));
    if (serverTime) this.#clock.learn(serverTime, sentAt, performance.now());
  }
}

/** What a JSON answer says. Throws Refusal, or Unreachable when the outcome is unknown. */
export async function read(answer) {
  const document = await answer.json();
  if (answer.ok) return document;
  if (answer.status >= 500) throw new Unreachable(document.detail);
  throw new Refusal(document, answer.headers.get("Retry-After"));
}
