// What the page says. The service's own sentences are not here: they come with its answers.

import { isLive, isOwn, minutes } from "/page/seats.js";

const TICKETS = {
  loading: () => ({ title: "One moment", text: "The service is being asked which seats are free." }),

  choosing: ({ time }) => ({
    title: "Choose a seat",
    text: `It is kept for you for ${time} minutes while you make up your mind.`,
  }),

  holding: ({ seat, price }) => ({
    title: seat,
    text: "Nobody else can take it while the time runs.",
    actions: { pay: `Pay ${price}`, extend: true, "give-up": true },
  }),

  late: ({ seat, price }) => ({
    title: seat,
    text: "Your time is up. Nobody has taken the seat yet, so you can still have it.",
    actions: { again: true, pay: `Pay ${price} all the same`, "give-up": true },
  }),

  bought: ({ seat, price, isLate }) => ({
    title: `${seat} is yours`,
    text: isLate
      ? `You paid ${price} after your time was up, and nobody had taken the seat. Enjoy the evening.`
      : `You paid ${price}. Enjoy the evening.`,
    actions: { done: true },
  }),

  refunded: ({ seat, price, sentence }) => ({
    title: "Your money goes back",
    text: `You paid ${price} for ${inside(seat)}. The reservation service said: “${sentence}”`,
    actions: { done: true },
  }),

  unsettled: ({ seat, price }) => ({
    title: "Your payment is on its way",
    text:
      `You paid ${price} for ${inside(seat)}, and the reservation service has not answered yet. ` +
      "As soon as it does, the seat is yours or the money goes back.",
    actions: { "look-again": true },
  }),
};

/** { phase, title, text, actions, row, message }; row is there while time is of interest. */
export function ticketOf(booking, { price, time }) {
  const { phase, row, ending, message, name } = booking;
  const isTimed = phase === "holding" || phase === "late";
  const seat = name(ending?.seat ?? row?.reservationId)?.replace(/ (?=\d)/, "\u00a0");
  const words = TICKETS[phase]({ ...ending, seat, price, time });
  return { phase, message, actions: {}, row: isTimed ? row : null, ...words };
}

/** { title, text } of the bank's question, or null while there is none. */
export function questionOf({ payment, rows, message, name }, session, { price }, now) {
  if (payment?.status !== "awaiting-approval") return null;
  const title = `${price} for ${inside(name(payment.seat))}?`;
  return { title, text: message?.text ?? stateOfSeat(rows.get(payment.seat), session, now) };
}

function stateOfSeat(row, session, now) {
  const left = minutes(Math.max(0, row.expiresAt - now));
  if (!isOwn(row, session.held)) return "Your time is up, and somebody else has taken the seat.";
  if (isLive(row, now)) return `The seat is held for you for another ${left}.`;
  return "Your time is up. Nobody has taken the seat yet.";
}

function inside(text) {
  return text[0].toLowerCase() + text.slice(1);
}
