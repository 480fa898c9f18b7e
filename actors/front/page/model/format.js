// How numbers, times and paths are told. Pure.

/** Seconds as people say them: "0.3 s", "12 s", "3 m 05 s", "2 h 04 m", "3 d 01 h". */
export function duration(seconds) {
  if (!Number.isFinite(seconds) || seconds < 0) return "";
  if (seconds < 0.0095) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const [large, small, units] =
    whole < 3600
      ? [whole / 60, whole % 60, "ms"]
      : whole < 86400
        ? [whole / 3600, (whole / 60) % 60, "hm"]
        : [whole / 86400, (whole / 3600) % 24, "dh"];
  return `${Math.floor(large)} ${units[0]} ${String(Math.floor(small)).padStart(2, "0")} ${units[1]}`;
}

/** A count, short: "950", "1.2k", "34k", "1.2M". */
export function count(number) {
  for (const [size, unit] of [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ]) {
    if (number < size) continue;
    const value = number / size;
    return `${value < 9.95 ? value.toFixed(1) : Math.round(value)}${unit}`;
  }
  return String(number ?? 0);
}

/** US dollars with as many digits as say something; "" for nothing. `priced` is false if the price of a part is not known. */
export function cost(dollars, priced) {
  const more = priced === false ? "+" : "";
  if (!dollars) return more && "unpriced";
  if (dollars < 0.0001) return more ? "$0.0001+" : "<$0.0001";
  return `$${dollars.toFixed(dollars < 0.1 ? 4 : 2)}${more}`;
}

/** Tokens that went in and came out. */
export function tokens(input, output) {
  return input || output ? `${count(input)} in, ${count(output)} out` : "";
}

/** Milliseconds of an RFC 3339 time; NaN if there is none. */
export function instant(text) {
  return text ? Date.parse(text) : NaN;
}

/** The time of day in the reader's zone. */
export function clock(text) {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? "" : at.toLocaleTimeString([], { hour12: false });
}

/** When something began: the time of day today, the date before that. */
export function moment(text, now = Date.now()) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return "";
  const today = new Date(now).toDateString() === at.toDateString();
  const time = at.toLocaleTimeString([], { hour12: false, hour: "2-digit", minute: "2-digit" });
  return today ? time : `${at.toLocaleDateString([], { day: "numeric", month: "short" })} ${time}`;
}

/** The end of a path; what it is called within its run. */
export function leaf(path) {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** What an actor is called among others: children of one agent have the name of theirs, told apart by their id. */
export function caller(path) {
  const name = leaf(path);
  const above = leaf(path.slice(0, -name.length - 1));
  const id = above.match(/^agent_(.+)_([0-9a-f]{4,})$/);
  return id && id[1] === name ? `${name} ${id[2].slice(0, 4)}` : name;
}

/** A path without the run it is in. */
export function within(path, run) {
  const head = `/${run}`;
  return path === head ? "/" : path.startsWith(`${head}/`) ? path.slice(head.length + 1) : path;
}

/** At most `most` characters of a text, on one line. */
export function line(text, most = 240) {
  const flat = String(text ?? "")
    .replace(/\s+/g, " ")
    .trim();
  return flat.length > most ? `${flat.slice(0, most - 1)}\u2026` : flat;
}
