// The page: it puts the parts together, and draws what the booking says several times a second.

import { Bank } from "/page/bank.js";
import { Booking } from "/page/booking.js";
import { ServerClock } from "/page/clock.js";
import { part, write } from "/page/dom.js";
import { Hall } from "/page/hall.js";
import { minutes } from "/page/seats.js";
import { ReservationService } from "/page/service.js";
import { Session } from "/page/session.js";
import * as shop from "/page/shop.js";
import { Ticket } from "/page/ticket.js";
import { questionOf, ticketOf } from "/page/wording.js";

const TICK_MS = 200;

class Page {
  #session;
  #terms;
  #clock = new ServerClock();
  #hall;
  #booking;
  #ticket;
  #bank;

  constructor({ serviceUrl, holdSeconds, priceCents, currency, rows }, session) {
    const money = new Intl.NumberFormat("en", { style: "currency", currency });
    this.#terms = { price: money.format(priceCents / 100), time: minutes(1000 * holdSeconds) };
    this.#session = session;
    const grid = part("seats");
    this.#hall = new Hall(grid, rows, (seat) => this.#choose(seat));
    const booking = new Booking({
      service: new ReservationService(serviceUrl, this.#clock),
      clock: this.#clock,
      session,
      holdSeconds,
      seats: this.#hall.seats(),
      name: (seat) => this.#hall.name(seat),
      onChange: () => this.#draw(),
    });
    this.#booking = booking;
    this.#ticket = new Ticket({
      pay: () => booking.pay(),
      again: () => booking.holdAgain(),
      extend: () => booking.extend(),
      "give-up": () => booking.giveUp(),
      "look-again": () => booking.approve(),
      done: () => booking.finish(),
    });
    this.#bank = new Bank({
      onApprove: () => booking.approve(),
      onDecline: () => booking.decline(),
    });
  }

  open() {
    setInterval(() => this.#draw(), TICK_MS);
    this.#draw();
    this.#booking.start();
  }

  /** It was out of sight: what it shows may be old. */
  comeBack() {
    this.#booking.refresh();
  }

  #choose(seat) {
    if (this.#booking.payment || this.#booking.isHere(seat)) this.#ticket.focus();
    else this.#booking.choose(seat);
  }

  #draw() {
    const [booking, session, now] = [this.#booking, this.#session, this.#clock.now()];
    this.#bank.render(questionOf(booking, session, this.#terms, now));
    this.#ticket.render(ticketOf(booking, this.#terms), now);
    if (booking.isLoaded) this.#hall.render(booking.rows, session, now);
    write("trouble", booking.trouble ?? "");
    document.body.classList.toggle("busy", booking.isBusy);
  }
}

const session = new Session();
const arrive = () => shop.arrive(session.holder);
arrive();
addEventListener("pagehide", () => shop.leave(session.holder, session.held));

const page = new Page(await shop.settings(), session);
page.open();
addEventListener("pageshow", (event) => event.persisted && (arrive(), page.comeBack()));
document.addEventListener("visibilitychange", () => document.hidden || page.comeBack());
