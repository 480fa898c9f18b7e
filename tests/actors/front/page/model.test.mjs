// What the page knows, without a browser: run by test_model.py with node.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Follower } from "./page/follow.js";
import { ending, figures as figuresOf, parts } from "./page/model/calls.js";
import { parted } from "./page/model/diff.js";
import { caller, cost, count, duration } from "./page/model/format.js";
import { layout } from "./page/model/layout.js";
import { RunState } from "./page/model/run.js";
import { bars, cachedShare, chosen, dayInWords, everyDay, figures, limits, ordered } from "./page/model/usage.js";
import { adopt, protocols, read } from "./page/token.js";
import { Refusal, Wire } from "./page/wire.js";

const RUN = "run-1";
let number = 0;

function event(kind, actor = "", data = {}, id = "") {
  return {
    seq: ++number,
    ts: "2026-11-03T10:00:00Z",
    run: RUN,
    actor: `/${RUN}${actor && `/${actor}`}`,
    kind,
    data,
    id,
  };
}

function after(...events) {
  number = 0;
  const state = new RunState(RUN);
  for (const make of events) assert.ok(state.apply(event(...make)));
  return state;
}

const GRAPH = [
  ["run.started", "", { name: "g", target: "g", dialect: "graph" }],
  ["actor.spawned"],
  ["actor.spawned", "g"],
  ["graph.started", "g", { graph: "g", start: "a" }],
];

test("an event that came before is taken for granted, one that comes too early is refused", () => {
  const state = after(...GRAPH);
  const known = state.seq;
  assert.ok(state.apply({ seq: 2, kind: "actor.spawned", actor: "/run-1", data: {} }));
  assert.equal(state.apply({ seq: known + 2, kind: "actor.spawned", actor: "/run-1/x", data: {} }), false);
  assert.equal(state.seq, known);
});

test("the tree of actors and the picture of the graph agree about a node that failed and was gone on from", () => {
  const state = after(
    ...GRAPH,
    ["actor.spawned", "g/a"],
    ["node.entered", "g/a", { node: "a", type: "llm" }],
    ["node.exited", "g/a", { node: "a", seconds: 1, next: ["e"], error: "HTTP 404" }],
    ["actor.stopped", "g/a"],
    ["node.entered", "g", { node: "e", type: "end" }],
    ["node.exited", "g", { node: "e", seconds: 0 }],
    ["graph.finished", "g", { graph: "g", seconds: 1, error: "HTTP 404" }],
    ["actor.stopped", "g"],
    ["run.failed", "", { outcome: { output: "x", error: { code: "model", message: "HTTP 404" } } }],
  );
  const looks = (path) => state.actors.known.get(`/run-1${path}`).state;
  assert.deepEqual(["", "/g", "/g/a"].map(looks), ["failed", "failed", "failed"]);
  assert.equal(state.actors.known.get("/run-1/g/a").error, "HTTP 404");
  assert.deepEqual([state.graph.look("a"), state.graph.look("e")], ["failed", "done"]);
});

test("an item of a map that fell back is done, an agent and a tool that failed are failed", () => {
  const state = after(
    ...GRAPH,
    ["actor.spawned", "g/m/a[0]"],
    ["node.entered", "g/m/a[0]", { node: "a", type: "llm", item: 0 }],
    ["node.exited", "g/m/a[0]", { node: "a", seconds: 1, item: 0, next: ["b"], error: "HTTP 404" }],
    ["node.entered", "g/m/a[0]", { node: "b", type: "llm", item: 0 }],
    ["node.exited", "g/m/a[0]", { node: "b", seconds: 1, item: 0 }],
    ["actor.stopped", "g/m/a[0]"],
    ["actor.spawned", "g/k"],
    ["agent.started", "g/k", { agent: "k", depth: 1 }],
    ["actor.spawned", "g/k/fs_read"],
    ["tool.call.started", "g/k/fs_read", { tool: "fs_read" }, "1"],
    ["tool.call.finished", "g/k/fs_read", { tool: "fs_read", seconds: 1, error: "no such file" }, "1"],
    ["actor.stopped", "g/k/fs_read"],
    ["agent.finished", "g/k", { agent: "k", error: "HTTP 500", turns: 1 }],
    ["actor.stopped", "g/k"],
  );
  const looks = (path) => state.actors.known.get(`/run-1/g/${path}`).state;
  assert.deepEqual(["m/a[0]", "k/fs_read", "k"].map(looks), ["done", "failed", "failed"]);
});

test("any part of a stream told twice leaves the same state", () => {
  const made = [
    ...GRAPH,
    ["actor.spawned", "g/a"],
    ["node.entered", "g/a", { node: "a", type: "llm" }],
    ["llm.request", "g/a", { model: "m" }, "1"],
    ["llm.delta", "g/a", { text: "one " }, "1"],
    ["llm.delta", "g/a", { text: "two" }, "1"],
  ];
  number = 0;
  const events = made.map((each) => event(...each));
  const state = new RunState(RUN);
  for (let end = 1; end <= events.length; end++)
    for (const each of events.slice(Math.max(0, end - 4), end)) assert.ok(state.apply(each));
  assert.equal(state.work.blocks.length, 1);
  assert.equal(state.work.blocks[0].text, "one two");
  assert.equal(state.graph.at("a").visits, 1);
});

test("nodes light up and go out, lines that were walked are known, end nodes are the graph's own", () => {
  const state = after(...GRAPH, ["actor.spawned", "g/a"], ["node.entered", "g/a", { node: "a", type: "llm" }]);
  assert.equal(state.graph.look("a"), "running");
  state.apply(event("node.exited", "g/a", { node: "a", seconds: 1, next: ["e"] }));
  state.apply(event("actor.stopped", "g/a"));
  state.apply(event("node.entered", "g", { node: "e", type: "end" }));
  state.apply(event("node.exited", "g", { node: "e", seconds: 0 }));
  assert.equal(state.graph.look("a"), "done");
  assert.equal(state.graph.look("e"), "done");
  assert.ok(state.graph.walked.has("a\ne"));
  assert.equal(state.actors.known.get("/run-1/g").kind, "graph");
});

test("nodes of a graph below are not taken for the run's own", () => {
  const state = after(
    ...GRAPH,
    ["actor.spawned", "g/a"],
    ["node.entered", "g/a", { node: "a", type: "agent" }],
    ["actor.spawned", "g/a/sub"],
    ["graph.started", "g/a/sub", { graph: "sub", start: "a", depth: 1 }],
    ["node.entered", "g/a/sub/a", { node: "a", type: "llm" }],
    ["node.exited", "g/a/sub/a", { node: "a", seconds: 1, next: ["z"] }],
  );
  assert.equal(state.graph.look("a"), "running");
  assert.equal(state.graph.walked.size, 0);
});

test("a question is open until it is answered, and what asks it is shown as waiting", () => {
  const state = after(
    ...GRAPH,
    ["actor.spawned", "g/a"],
    ["node.entered", "g/a", { node: "a", type: "approval" }],
    ["question.asked", "g/a", { question: { id: "q1", text: "?" } }, "q1"],
  );
  assert.deepEqual([state.standing, state.graph.look("a"), state.open.length], ["waiting", "waiting", 1]);
  state.apply(event("question.answered", "g/a", { value: "yes", by: "terminal" }, "q1"));
  assert.deepEqual([state.standing, state.graph.look("a"), state.open.length], ["running", "running", 0]);
});

test("a tool call belongs to the agent, is done once, and the same id may come again", () => {
  const call = (n, error) => [
    ["actor.spawned", "a/t"],
    ["tool.call.started", "a/t", { tool: "t", arguments: `{"n":${n}}` }, "call_0"],
    ["tool.call.delta", "a/t", { tool: "t", text: "x" }, "call_0"],
    ["tool.call.finished", "a/t", { tool: "t", seconds: 1, error }, "call_0"],
  ];
  const state = after(["run.started"], ["actor.spawned", "a"], ...call(1), ...call(2, "broken"));
  assert.deepEqual(
    state.work.blocks.map((block) => [block.actor, block.args, block.error, block.open]),
    [
      ["/run-1/a", '{"n":1}', "", false],
      ["/run-1/a", '{"n":2}', "broken", false],
    ],
  );
});

test("what a tool prints and changes belongs to its call, though only the call itself has an id", () => {
  const state = after(
    ["run.started"],
    ["actor.spawned", "a"],
    ["actor.spawned", "a/t"],
    ["actor.spawned", "a/u"],
    ["tool.call.started", "a/t", { tool: "t", arguments: "{}" }, "call_0"],
    ["tool.call.started", "a/u", { tool: "u", arguments: "{}" }, "call_1"],
    ["tool.call.delta", "a/t", { tool: "t", text: "x" }],
    ["file.changed", "a/u", { tool: "u", path: "/p/a", how: "changed", added: 3, removed: 1 }],
    ["tool.call.finished", "a/u", { tool: "u", seconds: 1 }, "call_1"],
    ["file.changed", "a/u", { tool: "u", path: "/p/b", how: "created", added: 1, removed: 0 }],
  );
  assert.deepEqual(
    state.work.blocks.map((block) => [block.tool, block.lines, block.files.map((file) => file.path)]),
    [
      ["t", ["x"], []],
      ["u", [], ["/p/a"]],
    ],
  );
});

test("a request that is tried again begins its text anew", () => {
  const state = after(
    ["run.started"],
    ["llm.request", "a", { model: "m" }, "1"],
    ["llm.delta", "a", { text: "half" }, "1"],
    ["llm.retry", "a", { model: "m", attempt: 1, wait: 0.1, error: "gone" }, "1"],
    ["llm.request", "a", { model: "m", attempt: 2 }, "1"],
    ["llm.delta", "a", { text: "whole" }, "1"],
  );
  assert.equal(state.work.blocks[0].text, "whole");
});

test("tokens for vectors and for an order count for who asked", () => {
  const state = after(
    ["run.started"],
    ["actor.spawned", "a"],
    ["llm.embedding", "a", { model: "e", texts: 3, seconds: 1, input_tokens: 7 }],
    ["llm.rerank", "a", { model: "r", texts: 3, seconds: 1, input_tokens: 5 }],
  );
  const { turns, input_tokens } = state.actors.known.get("/run-1/a");
  assert.deepEqual([turns, input_tokens], [0, 12]);
});

test("the end of a run ends everything that was open in it", () => {
  const state = after(
    ...GRAPH,
    ["actor.spawned", "g/a"],
    ["node.entered", "g/a", { node: "a", type: "llm" }],
    ["llm.request", "g/a", { model: "m" }, "1"],
    ["question.asked", "g/a", { question: { id: "q" } }, "q"],
    ["run.failed", "", { outcome: { error: { code: "limit", message: "too much" } } }],
  );
  assert.equal(state.status, "failed");
  assert.equal(state.actors.tally().live, 0);
  assert.equal(state.actors.known.get("/run-1").state, "failed");
  assert.equal(state.open.length, 0);
  assert.equal(state.work.blocks[0].broken, true);
  assert.equal(state.graph.look("a"), "cancelled");
});

test("a million pieces of text and a hundred thousand calls stay within bounds", () => {
  const state = after(["run.started"], ["llm.request", "a", { model: "m" }, "1"]);
  const piece = "x".repeat(100);
  for (let n = 0; n < 20000; n++) state.apply(event("llm.delta", "a", { text: piece }, "1"));
  assert.ok(state.work.blocks[0].text.length <= 60000);
  assert.ok(state.work.blocks[0].cut);
  assert.equal(state.log.rows.length, 3);
  for (let n = 0; n < 30000; n++) {
    state.apply(event("actor.spawned", `a/t${n}`));
    state.apply(event("tool.call.started", `a/t${n}`, { tool: `t${n}` }, "c"));
    state.apply(event("tool.call.finished", `a/t${n}`, { tool: `t${n}`, seconds: 0 }, "c"));
    state.apply(event("actor.stopped", `a/t${n}`));
  }
  assert.ok(state.work.blocks.length <= 5000 && state.work.blocks.length + state.work.dropped === 30001);
  assert.ok(state.log.rows.length <= 110000 && state.log.rows.length + state.log.dropped === 120003);
  assert.ok(state.actors.known.size < 5100);
});

test("the tree filters with who leads there, folds, and leaves out who has ended", () => {
  const state = after(
    ["run.started", "", { name: "top" }],
    ...["a", "a/b", "a/b/needle", "c"].map((path) => ["actor.spawned", path]),
    ["actor.stopped", "c"],
  );
  const names = (options) => state.actors.rows(options).map((row) => row.actor.name);
  assert.deepEqual(names(), ["top", "a", "b", "needle", "c"]);
  assert.deepEqual(names({ filter: "NEEDLE" }), ["top", "a", "b", "needle"]);
  assert.deepEqual(names({ collapsed: new Set(["/run-1/a"]) }), ["top", "a", "c"]);
  assert.deepEqual(names({ live: true }), ["top", "a", "b", "needle"]);
});

test("a layout has every node once, none upon another, and lines that lead back on the side", () => {
  const ids = ["a", "b", "c", "d", "e"];
  const edges = [
    ["a", "b"],
    ["a", "c"],
    ["b", "d"],
    ["c", "d"],
    ["a", "d"],
    ["d", "b"],
    ["d", "e"],
    ["e", "e"],
    ["e", "nowhere"],
  ].map(([from, to]) => ({ from, to }));
  const made = layout(
    ids.map((id) => ({ id, width: 100, height: 40 })),
    edges,
  );
  assert.equal(made.nodes.size, 5);
  assert.equal(made.edges.length, 8);
  assert.deepEqual(
    made.edges.filter((edge) => edge.back).map(({ edge }) => `${edge.from}${edge.to}`),
    ["db", "ee"],
  );
  const places = [...made.nodes.values()];
  for (const one of places) {
    assert.ok(one.x >= 50 && one.x <= made.width - 50 && one.y >= 20 && one.y <= made.height - 20);
    for (const other of places)
      assert.ok(one === other || Math.abs(one.x - other.x) >= 100 || Math.abs(one.y - other.y) >= 40);
  }
  for (const { edge, back } of made.edges) assert.ok(back || made.nodes.get(edge.from).y < made.nodes.get(edge.to).y);
  assert.deepEqual(layout([], []).nodes.size, 0);
});

test("numbers are told shortly", () => {
  assert.deepEqual([0.004, 0.34, 9.96, 59.7, 185, 7440, 90000, NaN].map(duration), [
    "4 ms",
    "0.3 s",
    "10 s",
    "1 m 00 s",
    "3 m 05 s",
    "2 h 04 m",
    "1 d 01 h",
    "",
  ]);
  assert.deepEqual([0, 950, 1234, 34000, 1.2e6].map(count), ["0", "950", "1.2k", "34k", "1.2M"]);
  assert.deepEqual(["/r/g/lead", "/r/lead/children/agent_explore_1a2b3c4d/explore"].map(caller), [
    "lead",
    "explore 1a2b",
  ]);
  assert.deepEqual([0, 0.00001, 0.0912, 12.5].map(cost), ["", "<$0.0001", "$0.0912", "$12.50"]);
});

test("the token leaves the address, and any token fits into a subprotocol", () => {
  const kept = new Map();
  const storage = { setItem: (key, value) => kept.set(key, value), getItem: (key) => kept.get(key) ?? null };
  let shown = "";
  assert.ok(
    adopt(
      { hash: "#token=a%2Bb/c", pathname: "/", search: "" },
      { replaceState: (a, b, address) => (shown = address) },
      storage,
    ),
  );
  assert.equal(read(storage), "a+b/c");
  assert.equal(shown, "/#/");
  adopt(
    { hash: "#token=abc&run=run-7f3a", pathname: "/", search: "" },
    { replaceState: (a, b, address) => (shown = address) },
    storage,
  );
  assert.equal(read(storage), "abc");
  assert.equal(shown, "/#/run/run-7f3a");
  adopt(
    { hash: "#token=abc&chat=chat-3f01", pathname: "/", search: "" },
    { replaceState: (a, b, address) => (shown = address) },
    storage,
  );
  assert.equal(shown, "/#/chat/chat-3f01");
  assert.equal(protocols("\u00fc>>??")[1], `bearer.${Buffer.from("\u00fc>>??").toString("base64url")}`);
});

class FakeSocket {
  static all = [];
  constructor() {
    this.sent = [];
    FakeSocket.all.push(this);
  }
  send(text) {
    this.sent.push(JSON.parse(text));
  }
  close() {}
  say(frame) {
    this.onmessage({ data: JSON.stringify({ jsonrpc: "2.0", ...frame }) });
  }
}

function connected(reachable = async () => false) {
  const wire = new Wire("ws://x/ws", { socket: () => new FakeSocket(), reachable });
  wire.use("t");
  const socket = FakeSocket.all.at(-1);
  socket.onopen();
  return { wire, socket };
}

test("an answer reaches who asked, a refusal is an error with its word, a lost connection fails what is open", async () => {
  const { wire, socket } = connected();
  const [first, second, third] = [wire.call("a"), wire.call("b"), wire.call("c")];
  socket.say({ id: 2, error: { code: -32004, message: "no", data: { code: "not_found" } } });
  socket.say({ id: 1, result: 7 });
  assert.equal(await first, 7);
  await assert.rejects(second, (error) => error instanceof Refusal && error.word === "not_found");
  socket.onclose();
  await assert.rejects(third, /lost/);
  await new Promise(setImmediate);
  assert.equal(wire.state, "lost");
  await assert.rejects(wire.call("d"), /no connection/);
  wire.use("");
});

test("a server that is there and refuses is told apart from one that is away", async () => {
  const wire = new Wire("ws://x/ws", { socket: () => new FakeSocket(), reachable: async () => true });
  wire.use("t");
  FakeSocket.all.at(-1).onclose();
  await new Promise(setImmediate);
  assert.equal(wire.state, "refused");
  wire.use("");
});

test("a follower asks again from where it is after a gap, and hears nothing of its old subscription", async () => {
  const { wire, socket } = connected();
  const follower = new Follower(wire, RUN, { frame: (then) => setImmediate(then) });
  const soon = () => new Promise((resolve) => setTimeout(resolve, 5));
  const answer = async (method, result) => {
    await soon();
    const asked = socket.sent.findLast((frame) => frame.method === method);
    socket.say({ id: asked.id, result });
    await soon();
    return asked.params;
  };
  const tell = (subscription, seq) =>
    socket.say({
      method: "_run/event",
      params: { subscription, run: RUN, event: { seq, ts: "", run: RUN, actor: `/${RUN}`, kind: "x", data: {} } },
    });
  await answer("_run/get", { run: { run: RUN } });
  assert.equal((await answer("_run/subscribe", { subscription: "s1", seq: 9 })).after, 0);
  tell("s1", 1);
  tell("s1", 3); // 2 was lost
  await soon();
  assert.equal((await answer("_run/subscribe", { subscription: "s2", seq: 9 })).after, 1);
  tell("s1", 4);
  tell("s2", 2);
  tell("s2", 3);
  await soon();
  assert.equal(follower.state.seq, 3);
  follower.close();
  wire.use("");
});

test("a cost that is not all known says so", () => {
  assert.deepEqual([cost(0, false), cost(0.00001, false), cost(0.0912, false), cost(0, true)], [
    "unpriced",
    "$0.0001+",
    "$0.0912+",
    "",
  ]);
});

const SPENT = { requests: 1, input_tokens: 0, cached_tokens: 0, output_tokens: 0, cost: 0, unpriced: 0, priced: true };

test("every day of a range has its place, over the change of clocks too, and days without a request are empty", () => {
  const row = { ...SPENT, day: "2026-03-29", cost: 2 };
  const days = everyDay({ since: "2026-03-27", until: "2026-03-31", usage: [row] });
  assert.deepEqual(
    days.map((day) => [day.day, day.requests]),
    [
      ["2026-03-27", 0],
      ["2026-03-28", 0],
      ["2026-03-29", 1],
      ["2026-03-30", 0],
      ["2026-03-31", 0],
    ],
  );
  assert.match(dayInWords(days[0]), /27.*: nothing$/);
});

test("days come from the newest on, the rest from the dearest on, and of those that cost nothing the largest first", () => {
  const made = (name, cost, input_tokens = 0) => ({ ...SPENT, day: name, model: name, cost, input_tokens });
  const usage = [made("b", 1), made("c", 0, 5), made("a", 3), made("d", 0, 9)];
  const names = (by) => ordered({ by: [by], usage }).map((row) => row[by]);
  assert.deepEqual(names("model"), ["a", "b", "d", "c"]);
  assert.deepEqual(names("day"), ["d", "c", "b", "a"]);
});

test("what has no known price is never nothing, and what is free is a dash", () => {
  const unpriced = { ...SPENT, unpriced: 1, priced: false };
  assert.equal(figures(unpriced).cost, "unpriced");
  assert.equal(figures({ ...unpriced, cost: 1.5, requests: 2 }).cost, "$1.50+");
  assert.equal(figures(SPENT).cost, "\u2013");
  assert.match(dayInWords({ ...unpriced, day: "2026-03-29" }), /: unpriced, 1 request, 0 in, 0 out$/);
  assert.match(dayInWords({ ...unpriced, day: "2026-03-29", cost: 1.5, requests: 2 }), /\$1.50\+, 2 requests, 1 unpriced,/);
});

test("the share of caches is rounded down, and never to nothing or to all", () => {
  const share = (cached_tokens, input_tokens) => cachedShare({ cached_tokens, input_tokens });
  assert.deepEqual([share(0, 10), share(0, 0), share(1, 1000), share(999, 1000), share(5, 5)], ["", "", "<1%", "99%", "100%"]);
});

test("bars are of what days cost, of their tokens where no cost is known, and mark days that are not all priced", () => {
  const day = (cost, output_tokens, priced = true) => ({ ...SPENT, day: "2026-03-29", cost, output_tokens, priced });
  const paid = bars([day(2, 1), day(1, 900, false), day(0, 0)]);
  assert.deepEqual([paid.measure, paid.top], ["cost", "$2.00"]);
  assert.deepEqual(paid.bars.map((bar) => [bar.height, bar.partly]), [
    [1, false],
    [0.5, true],
    [0, false],
  ]);
  const local = bars([day(0, 500), day(0, 2000, false)]);
  assert.deepEqual([local.measure, local.top, local.bars[0].height], ["tokens", "2.0k", 0.25]);
  assert.deepEqual(bars([day(0, 0)]).bars[0].height, 0);
});

test("of limits that of all comes first, then what is used most; what is spent is said, and when there is more", () => {
  const use = { subject: "bob", max_cost: null, max_tokens: null, cost: 0, tokens: 0, held_cost: 0, held_tokens: 0 };
  const found = limits({
    daily: [
      { ...use, subject: "", max_cost: 20, cost: 2 },
      { ...use, subject: "alice", max_cost: 5, cost: 1.25, held_cost: 9, max_tokens: 1e6, tokens: 5e5, held_tokens: 5e4 },
      { ...use, max_cost: 1, cost: 1.01, held_cost: 1 },
    ],
  });
  assert.deepEqual(
    found.map((each) => [each.whose, each.spent, each.held, each.text]),
    [
      ["All together", 0.1, 0, "$2.00 of $20.00 today"],
      ["bob", 1, 0, "$1.01 of $1.00 today: no more until 00:00 UTC"],
      ["alice", 0.5, 0.05, "500k of 1.0M tokens today, 50k reserved"],
      ["alice", 0.25, 0.75, "$1.25 of $5.00 today, $9.00 reserved"],
    ],
  );
  assert.deepEqual(limits({ daily: [] }), []);
});

test("an address chooses groups and ranges that there are", () => {
  assert.deepEqual(chosen("key", "90"), { by: "key", days: 90 });
  assert.deepEqual(chosen("owner", "31"), { by: "model", days: 30 });
  assert.deepEqual(chosen(undefined, undefined), { by: "model", days: 30 });
});

test("a question of a tool is its words and the lines of its diff; one without a diff is its words alone", () => {
  const diff = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n--- sql\n+++ c\n\\ No newline at end of file";
  const found = parted({ text: `Allow fs_write?\npath: x\n${diff}`, diff });
  assert.equal(found.text, "Allow fs_write?\npath: x");
  assert.deepEqual(
    found.lines.map((line) => line.kind),
    ["head", "head", "hunk", "same", "removed", "added", "note"],
  );
  assert.deepEqual(parted({ text: "Go?" }), { text: "Go?", lines: [] });
  assert.deepEqual(parted({ text: "Go?", diff: "+other" }), { text: "Go?", lines: [] });
  assert.deepEqual(parted(undefined), { text: "", lines: [] });
});

const CALL = {
  number: 3,
  started: "2026-11-24T10:00:00Z",
  actor: "/run-1/lead",
  model: "a:b",
  status: "answered",
  stop: "tools",
  calls: ["fs_ls"],
  seconds: 1.25,
  input_tokens: 1200,
  output_tokens: 30,
  cost: 0.002,
  error: "",
  tries: 2,
};

test("a call is told by how its reply ended and what it took", () => {
  assert.equal(ending(CALL, true), "calls fs_ls");
  assert.equal(ending({ ...CALL, calls: [], stop: "end" }, true), "end");
  assert.equal(ending({ ...CALL, status: "failed", error: "no" }, true), "no");
  assert.equal(ending({ ...CALL, status: "asked" }, true), "cut off");
  assert.equal(ending({ ...CALL, status: "asked" }, false), "is asked\u2026");
  assert.equal(figuresOf(CALL).split(" \u00b7 ").slice(1).join("; "), "a:b; 1.2k in, 30 out; $0.0020; 1.3 s; 2 tries");
  assert.equal(figuresOf({ ...CALL, seconds: null, input_tokens: 0, output_tokens: 0, cost: null, tries: 1, started: "" }), "a:b");
});

test("the parts of a call are what the model saw, in its order, and what it said", () => {
  const request = {
    system: "You lead.",
    messages: [
      { role: "user", content: [{ type: "text", text: "look" }, { type: "image", media_type: "image/png", bytes: 5000 }] },
      { role: "assistant", text: "I look", tool_calls: [{ id: "1", name: "fs_ls", arguments: { path: "." } }] },
      { role: "assistant", tool_calls: [{ id: "2", name: "fs_ls", malformed: "{pa" }] },
      { role: "tool", call: "1", name: "fs_ls", content: "no such file", error: true },
    ],
    tools: [{ name: "fs_ls", description: "Lists.", parameters: { properties: { path: {}, deep: {} } } }],
    parameters: { temperature: 0.5 },
  };
  const reply = { text: "done", reasoning: "hm", tool_calls: [], stop: "end" };
  const found = parts({ ...CALL, request, reply, failures: [{ error: "busy", wait: 1 }] });
  assert.deepEqual(
    found.map((part) => [part.title, part.text]),
    [
      ["System", "You lead."],
      ["User", "look\n[image: image/png, 5.0k bytes]"],
      ["Assistant", 'I look\ncalls fs_ls {"path":"."}'],
      ["Assistant", "calls fs_ls {pa"],
      ["Tool fs_ls (failed)", "no such file"],
      ["Tools (1)", "fs_ls(path, deep)\nLists."],
      ["Parameters", '{\n "temperature": 0.5\n}'],
      ["Try 1 failed", "busy"],
      ["Reasoning", "hm"],
      ["Reply (end)", "done"],
    ],
  );
  const bare = { system: "", messages: [], tools: [], parameters: {} };
  const failed = parts({ ...CALL, request: bare, reply: null, failures: [], error: "too long" });
  assert.deepEqual(failed, [{ title: "Failed", text: "too long", tone: "failed" }]);
});

test("a run that another process goes on with is one run: its questions are asked again, its figures go on", () => {
  const state = after(
    ...GRAPH,
    ["usage.update", "g", { model: "m", input_tokens: 10, output_tokens: 5, cost: 0 }],
    ["node.entered", "g/a", { node: "a", type: "input" }],
    ["question.asked", "g/a", { question: { id: "q-1-1", text: "Who?" } }, "q-1-1"],
  );
  assert.equal(state.standing, "waiting");
  const next = (kind, actor, data, id) => ({ ...event(kind, actor, data, id), seq: 1e9 + number });
  number = 0;
  assert.equal(state.apply(next("actor.spawned", "x")), false);
  number = 0;
  assert.ok(state.apply(next("run.started", "", { name: "g", target: "g", dialect: "graph" })));
  assert.deepEqual([state.standing, state.ended, state.open.length], ["running", null, 0]);
  assert.ok(state.apply(next("run.resumed", "", { life: 2, rows: 7, after: 6 })));
  assert.ok(state.apply(next("actor.spawned")));
  assert.ok(state.apply(next("actor.spawned", "g")));
  assert.ok(state.apply(next("graph.started", "g", { graph: "g", start: "a" })));
  assert.ok(state.apply(next("question.asked", "g/a", { question: { id: "q-1-1", text: "Who?" } }, "q-1-1")));
  assert.deepEqual([state.life, state.standing, state.open.length, state.used.input_tokens], [2, "waiting", 1, 10]);
  assert.ok(state.apply(next("run.cancelled", "", { outcome: { status: "cancelled", resumable: true } })));
  assert.equal(state.standing, "interrupted");
  assert.equal(state.actors.tally().live, 0);
});
