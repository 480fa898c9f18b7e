// What models have cost, as the server sums it: every day of a range, rows in order, bars. Pure.

import { cost, count } from "./format.js";

export const GROUPS = ["day", "model", "agent", "key"];
export const RANGES = [7, 30, 90];

const DAY = 86_400_000;
const NONE = { requests: 0, input_tokens: 0, cached_tokens: 0, output_tokens: 0, cost: 0, unpriced: 0, priced: true };

/** The choice that an address names, such as `#/usage/model/7`; what it does not name is as at first. */
export function chosen(by, days) {
  const range = Number(days);
  return { by: GROUPS.includes(by) ? by : "model", days: RANGES.includes(range) ? range : 30 };
}

/** Every day of a report by day, oldest first, those without a request too. */
export function everyDay(report) {
  const known = new Map(report.usage.map((row) => [row.day, row]));
  const days = [];
  for (let at = Date.parse(report.since); at <= Date.parse(report.until); at += DAY) {
    const day = new Date(at).toISOString().slice(0, 10);
    days.push(known.get(day) ?? { ...NONE, day });
  }
  return days;
}

/** The rows of a report by one group: days from the newest on, others from the dearest on. */
export function ordered(report) {
  const [by] = report.by;
  const tokens = (row) => row.input_tokens + row.output_tokens;
  return [...report.usage].sort((one, other) =>
    by === "day"
      ? other.day.localeCompare(one.day)
      : other.cost - one.cost || tokens(other) - tokens(one) || one[by].localeCompare(other[by]),
  );
}

/** How much of the input came out of caches: "64%"; "" for nothing. */
export function cachedShare(row) {
  if (!row.cached_tokens || !row.input_tokens) return "";
  const percent = (100 * row.cached_tokens) / row.input_tokens;
  return percent < 1 ? "<1%" : `${Math.floor(percent)}%`;
}

/** A row's figures as texts; what costs nothing has a dash, what has no known price is no $0. */
export function figures(row) {
  return {
    requests: count(row.requests),
    input: count(row.input_tokens),
    cached: cachedShare(row),
    output: count(row.output_tokens),
    cost: cost(row.cost, row.priced) || "\u2013",
  };
}

/** Bars for days: of their cost, or of their tokens where no cost is known. `top` is what the highest stands for. */
export function bars(days) {
  const measure = days.some((day) => day.cost > 0) ? "cost" : "tokens";
  const value = (day) => (measure === "cost" ? day.cost : day.input_tokens + day.output_tokens);
  const top = Math.max(0, ...days.map(value));
  return {
    measure,
    top: measure === "cost" ? cost(top) : count(top),
    bars: days.map((day) => ({ day, height: top ? value(day) / top : 0, partly: !day.priced })),
  };
}

/** One day in words: "3 Nov: $1.20, 12 requests, 3.4M in (64% cached), 20k out". */
export function dayInWords(day) {
  const told = figures(day);
  if (!day.requests) return `${dayName(day.day)}: nothing`;
  const requests = `${told.requests} request${day.requests === 1 ? "" : "s"}`;
  const unpriced = day.unpriced && day.unpriced < day.requests ? `, ${count(day.unpriced)} unpriced` : "";
  const cached = told.cached ? ` (${told.cached} cached)` : "";
  const price = told.cost === "\u2013" ? "" : `${told.cost}, `;
  return `${dayName(day.day)}: ${price}${requests}${unpriced}, ${told.input} in${cached}, ${told.output} out`;
}

/**
 * The limits of today, that of all first, then those that are used most: whose, shares that are spent and reserved, and
 * in words. Money and tokens are two.
 */
export function limits(report) {
  const usd = (amount) => cost(amount) || "$0";
  const found = report.daily.flatMap((use) => [
    limit(use.subject, use.cost, use.held_cost, use.max_cost, usd, ""),
    limit(use.subject, use.tokens, use.held_tokens, use.max_tokens, count, " tokens"),
  ]);
  return found
    .filter((each) => each !== null)
    .sort((one, other) => Number(one.subject !== "") - Number(other.subject !== "") || other.spent - one.spent);
}

function limit(subject, used, reserved, most, say, unit) {
  if (most === null) return null;
  const spent = Math.min(1, used / most);
  const over = used >= most;
  const more = reserved ? `, ${say(reserved)} reserved` : "";
  const text = `${say(used)} of ${say(most)}${unit} today${over ? ": no more until 00:00 UTC" : more}`;
  return { subject, whose: subject || "All together", spent, held: Math.min(1 - spent, reserved / most), over, text };
}

/** A day of UTC as people write it, without the year. */
export function dayName(day) {
  return new Date(day).toLocaleDateString([], { day: "numeric", month: "short", timeZone: "UTC" });
}
