// Runs one exported function of a TypeScript tool file, under node (with or without tsx), bun or deno.
//
// The arguments come in the order of the parameters; one that was left out is undefined, so its default counts. What
// the function returns is written to LLM_OUTPUT: a text as it is, null and undefined as nothing, anything else as JSON.
// There is no terminal: prompt, confirm, readline's question and a read from process.stdin ask a person over the
// socket in CALLBOARD_ASK_FD.

import fs from "node:fs";
import process from "node:process";
import readline from "node:readline";
import readlinePromises from "node:readline/promises";
import { Readable } from "node:stream";
import { pathToFileURL } from "node:url";

const NO_TYPES = 86; // exit status: this node can't read TypeScript; see `call`

const askFd = Number(process.env.CALLBOARD_ASK_FD);
const call = JSON.parse(fs.readFileSync(Number(process.env.CALLBOARD_CALL_FD), "utf8"));
delete process.env.CALLBOARD_CALL_FD;
if (word() !== "go") process.exit(2);

const plainNode = process.versions.node && !process.versions.bun && !process.versions.deno;
const loaded = process.execArgv.some((option) => option.startsWith("--import"));
const typed = /\.[cm]?ts$/.test(call.file);
if (plainNode && typed && !loaded && !process.features.typescript) process.exit(NO_TYPES);

function word() {
  const bytes = [];
  const one = Buffer.alloc(1);
  for (;;) {
    if (fs.readSync(askFd, one, 0, 1, null) === 0) throw new Error("the connection to Callboard is closed");
    if (one[0] === 0) return Buffer.from(bytes).toString("utf8");
    bytes.push(one[0]);
  }
}

function ask(fields) {
  const words = Object.entries(fields).map(([name, value]) => `${name}=${value}`.replaceAll("\0", ""));
  const data = Buffer.from([String(words.length), ...words].map((one) => one + "\0").join(""), "utf8");
  for (let sent = 0; sent < data.length; ) sent += fs.writeSync(askFd, data, sent);
  const status = word();
  const values = Array.from({ length: Number(word()) }, word);
  if (status !== "ok") throw new Error(values[0]);
  return values[0];
}

const text = (question) => ask({ kind: "text", text: String(question ?? "") });

globalThis.prompt = (question = "", preset) =>
  ask({ kind: "text", text: String(question), ...(preset === undefined ? {} : { default: String(preset) }) });
globalThis.confirm = (question = "") => ask({ kind: "confirm", text: String(question) }) === "yes";
let byReadline = false; // its questions are asked here, so what it reads from stdin by itself must stay silent
readline.Interface.prototype.question = function (question, options, callback) {
  byReadline = true;
  (callback ?? options)(text(question));
};
readlinePromises.Interface.prototype.question = async (question) => {
  byReadline = true;
  return text(question);
};

let asked = false;
const stdin = new Readable({
  read() {
    setImmediate(() => {
      if (byReadline) return;
      if (asked) return void this.push(null);
      asked = true;
      try {
        this.push(text("") + "\n");
      } catch (error) {
        console.error(error.message);
        this.push(null);
      }
    });
  },
});
stdin.fd = 0;
stdin.isTTY = false;
Object.defineProperty(process, "stdin", { configurable: true, get: () => stdin });

process.argv = [process.argv[0], call.file];
try {
  const tools = await import(pathToFileURL(call.file).href);
  const tool = tools[call.function] ?? tools.default?.[call.function];
  if (typeof tool !== "function") throw new Error(`${call.file} exports no function '${call.function}'`);
  const given = call.whole ? [call.arguments] : call.names.map((name) => call.arguments[name]);
  const result = await tool(...given);
  if (result !== undefined && result !== null) {
    const written = typeof result === "string" ? result : JSON.stringify(result);
    fs.appendFileSync(process.env.LLM_OUTPUT, written ?? String(result));
  }
} catch (error) {
  console.error(error instanceof Error ? (error.stack ?? error.message) : error);
  process.exitCode = 1;
}
