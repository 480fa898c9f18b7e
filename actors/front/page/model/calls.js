// A request to a model and its reply as parts with titles, and a call in one line. Pure.

import { clock, cost, count, duration, tokens } from "./format.js";

/** How its reply ended: "calls fs_ls, fs_cat", "end", why it failed; over: no more of it comes. */
export function ending(call, over) {
  if (call.status === "failed") return call.error;
  if (call.status === "asked") return over ? "cut off" : "is asked\u2026";
  return call.calls.length ? `calls ${call.calls.join(", ")}` : call.stop;
}

/** What a call has to show beside its number and its end. */
export function figures(call) {
  const tries = call.tries > 1 ? `${call.tries} tries` : "";
  const seconds = call.seconds === null ? "" : duration(call.seconds);
  const parts = [clock(call.started), call.model, tokens(call.input_tokens, call.output_tokens), cost(call.cost), seconds];
  return [...parts, tries].filter(Boolean).join(" \u00b7 ");
}

/** The parts of a call that was fetched whole: {title, text, tone, folded}. */
export function parts(call) {
  const { system, messages, tools, parameters } = call.request;
  const found = [];
  const put = (title, text, more = {}) => found.push({ title, text: text || "(nothing)", ...more });
  if (system) put("System", system);
  for (const message of messages) put(titleOf(message), textOf(message), { tone: message.error ? "failed" : "" });
  if (tools.length) put(`Tools (${count(tools.length)})`, tools.map(toolLine).join("\n\n"), { folded: true });
  if (Object.keys(parameters).length) put("Parameters", pretty(parameters), { folded: true });
  call.failures.forEach((each, place) => put(`Try ${place + 1} failed`, each.error, { tone: "failed" }));
  if (call.error) put("Failed", call.error, { tone: "failed" });
  const { reply } = call;
  if (!reply) return found;
  if (reply.reasoning) put("Reasoning", reply.reasoning, { folded: true });
  put(`Reply (${reply.stop})`, [reply.text, ...reply.tool_calls.map(callLine)].filter(Boolean).join("\n"), { tone: "reply" });
  return found;
}

function titleOf(message) {
  if (message.role === "tool") return `Tool ${message.name ?? ""}${message.error ? " (failed)" : ""}`;
  return { user: "User", assistant: "Assistant" }[message.role] ?? String(message.role);
}

function textOf(message) {
  const content = message.role === "assistant" ? message.text : message.content;
  const text = Array.isArray(content) ? content.map(partLine).join("\n") : content;
  return [text, ...(message.tool_calls ?? []).map(callLine)].filter(Boolean).join("\n");
}

function partLine(part) {
  if (part.type === "text") return part.text;
  const size = part.bytes === undefined ? "" : `, ${count(part.bytes)} bytes`;
  const head = `[${part.type}: ${part.name ?? part.url ?? part.media_type ?? ""}${size}]`;
  return part.text === undefined ? head : `${head}\n${part.text}`;
}

function callLine(call) {
  return `calls ${call.name} ${call.malformed || JSON.stringify(call.arguments ?? {})}`;
}

function toolLine(tool) {
  const names = Object.keys(tool.parameters?.properties ?? {}).join(", ");
  return `${tool.name}(${names})${tool.description ? `\n${tool.description}` : ""}`;
}

function pretty(value) {
  return JSON.stringify(value, null, 1);
}
