// What this tab is about: a seat is held, extended and given back at the reservation service, and
// paid through the shop. Nothing here touches the page. What is shown follows from the service's
// rows, the service's time, and what the session remembers.

import { LiveFeed } from "/page/feed.js";
import { isLive, isOwn, minutes } from "/page/seats.js";
import { Refusal, Unreachable } from "/page/service.js";
import * as shop from "/page/shop.js";

const ENDINGS = { confirmed: "bought", refunded: "refunded", unsettled: "unsettled" };

export class Booking {
  rows = new Map();
  isBusy = false;
  /** { text, isBad }: what came of the last thing that somebody did, or happened to them. */
  message = null;
  /** Why there is no news of the seats. */
  trouble = null;
  payment = null;
  /** { kind: "bought" | "refunded" | "unsettled", seat, sentence, isLate }: how a payment ended. */
  ending = null;

  #service;
  #clock;
  #session;
  #holdSeconds;
  #feed;
  #onChange;

  /** name(seat) is how a seat is called among people; onChange() follows whatever has changed. */
  constructor({ service, clock, session, holdSeconds, seats, name, onChange }) {
    this.name = name;
    this.#onChange = onChange;
    this.#service = service;
    this.#clock = clock;
    this.#session = session;
    this.#holdSeconds = holdSeconds;
    this.#feed = new LiveFeed(service, seats, {
      onRows: (rows) => this.#learn(rows),
      onTrouble: (error) => this.#explain(error),
    });
  }

  start() {
    this.#feed.start();
  }

  refresh() {
    this.#feed.refresh();
  }

  /** Whether the seats are known; until then nothing is done. */
  get isLoaded() {
    return this.rows.size > 0;
  }

  /** "loading", "choosing", "holding", "late" when the time is up, or the kind of the ending. */
  get phase() {
    if (!this.isLoaded) return "loading";
    if (this.ending) return this.ending.kind;
    if (!this.#session.held) return "choosing";
    return this.#isHeldNow(this.#session.held) ? "holding" : "late";
  }

  /** The row of the seat that this tab holds or has just held. */
  get row() {
    return this.rows.get(this.#session.held?.seat);
  }

  /** Whether the seat is this tab's already, held or paid. */
  isHere(seat) {
    const { held } = this.#session;
    return this.#session.hasBought(seat) || (held?.seat === seat && this.#isHeldNow(held));
  }

  /**
   * Whatever the map shows, the service decides: it may be newer than the map. Whoever holds a seat
   * already keeps it until they have the new one.
   */
  choose(seat) {
    const before = this.#session.held;
    return this.#attempt(async () => {
      this.ending = null;
      await this.#take(seat);
      if (before && before.seat !== seat) await this.#release(before);
    });
  }

  holdAgain() {
    return this.#attempt(() => this.#take(this.#session.held.seat));
  }

  extend() {
    return this.#attempt(async () => {
      const { seat, generation } = this.#session.held;
      const { holder } = this.#session;
      this.#keep(await this.#service.extend(seat, holder, generation, this.#holdSeconds));
    });
  }

  giveUp() {
    return this.#attempt(async () => {
      const { held } = this.#session;
      await this.#release(held);
      this.#session.letGo();
      this.#say(`You have given ${this.name(held.seat)} back.`);
    });
  }

  /** The bank is asked; until its answer the time goes on running. */
  pay() {
    return this.#attempt(async () => {
      this.payment = await shop.pay(this.#session.held.seat, this.#session.holder);
      if (this.payment.status in ENDINGS) this.#conclude(false); // begun before a reload
    });
  }

  /** Also asks again how a payment ended whose outcome is not known yet. */
  approve() {
    return this.#attempt(async () => {
      const isLate = !isLive(this.rows.get(this.payment.seat), this.#clock.now());
      this.payment = await shop.approve(this.payment).catch((error) => this.#forget(error));
      this.#conclude(isLate);
    });
  }

  decline() {
    return this.#attempt(async () => {
      const { payment } = this;
      this.payment = null;
      await shop.decline(payment);
      this.#say("The bank has declined, and nothing was charged.");
    });
  }

  finish() {
    this.ending = this.message = null;
    this.#onChange();
  }

  /** One thing at a time; afterwards the seats are asked for anew. */
  async #attempt(action) {
    if (this.isBusy || !this.isLoaded) return;
    this.isBusy = true;
    this.message = null;
    this.#onChange();
    try {
      await action();
    } catch (error) {
      this.#complain(error);
    } finally {
      this.isBusy = false;
      this.#onChange();
      this.#feed.refresh();
    }
  }

  async #take(seat) {
    const row = await this.#service.hold(seat, this.#session.holder, this.#holdSeconds);
    this.#session.hold(row);
    this.#keep(row);
  }

  async #release({ seat, generation }) {
    this.#keep(await this.#service.release(seat, this.#session.holder, generation));
  }

  #conclude(isLate) {
    const { seat, status, sentence } = this.payment;
    if (status === "confirmed") this.#session.buy(seat);
    if (status === "refunded" && this.#session.held?.seat === seat) this.#session.letGo();
    this.ending = { kind: ENDINGS[status], seat, sentence, isLate };
    if (status !== "unsettled") this.payment = null;
  }

  /** The shop has no such payment any more. */
  #forget(error) {
    if (error instanceof Refusal) this.payment = null;
    throw error;
  }

  #complain(error) {
    if (!(error instanceof Refusal || error instanceof Unreachable)) throw error;
    if (error.reservation) this.#keep(error.reservation);
    const { retryAfterSeconds } = error;
    const later = retryAfterSeconds ? ` (${minutes(1000 * retryAfterSeconds)} left)` : "";
    this.#say(error.message + later, true);
  }

  #say(text, isBad = false) {
    this.message = { text, isBad };
  }

  #keep(row) {
    this.rows.set(row.reservationId, row);
  }

  #isHeldNow(held) {
    const row = this.rows.get(held?.seat);
    return row !== undefined && isOwn(row, held) && isLive(row, this.#clock.now());
  }

  #learn(rows) {
    this.trouble = null;
    for (const row of rows) this.#keep(row);
    if (!this.isBusy && this.#session.held) this.#compare(this.#session.held, this.row);
    this.#onChange();
  }

  /** What has become of the hold in the meantime; only its holder can have confirmed it. */
  #compare(held, row) {
    if (!isOwn(row, held)) {
      this.#session.letGo();
      this.#say(`${this.name(held.seat)} is not yours any more; somebody else has taken it.`, true);
    } else if (row.status === "confirmed") {
      this.#session.buy(held.seat);
    } else if (row.status === "released") {
      this.#session.letGo();
      this.#say(`${this.name(held.seat)} was given back while this page was away.`, true);
    }
  }

  async #explain(error) {
    this.trouble = error.message;
    if (error instanceof Unreachable && error.isSilent) this.trouble = await this.#whySilent();
    this.#onChange();
  }

  async #whySilent() {
    return (await this.#service.isOnlyClosedToUs())
      ? "The reservation service is there, but it does not answer pages from here: " +
          `its cors.origins needs "${location.origin}".`
      : "The reservation service does not answer; what you see may be old.";
  }
}
