// The stock client of AG-UI (@ag-ui/client from npm) against our server; what it has seen is one JSON object.
//
// node agui_client.mjs NODE_DIR URL TOKEN
//
// The client reads every event by its own schemas, and checks their order; what it removes it warns of, which counts.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [place, url, token] = process.argv.slice(2);
const require = createRequire(`${place}/package.json`);
const { HttpAgent } = await import(pathToFileURL(require.resolve("@ag-ui/client")));

const warned = [];
console.warn = console.error = (...words) => warned.push(words.map(String).join(" "));

function agentFor(target, options = {}) {
  const headers = { authorization: `Bearer ${token}` };
  return new HttpAgent({ url: `${url}/agui?target=${target}`, headers, threadId: `thread ${target}`, ...options });
}

let count = 0;

/** One run of the agent: what its subscriber was told, and what came of it. */
async function play(agent, given = {}, onText = () => {}) {
  const told = { types: [], state: null, messages: [], steps: [], custom: [], outcome: null, error: null, failed: null };
  try {
    const done = await agent.runAgent({ runId: `run ${++count}`, ...given }, {
      onEvent: ({ event }) => {
        if (told.types.at(-1) !== event.type) told.types.push(event.type);
      },
      onStepStartedEvent: ({ event }) => { told.steps.push(event.stepName); },
      onCustomEvent: ({ event }) => { told.custom.push(event.name); },
      onTextMessageContentEvent: ({ textMessageBuffer, event }) => onText(textMessageBuffer + event.delta),
      onRunErrorEvent: ({ event }) => { told.error = { code: event.code, message: event.message }; },
      onRunFinishedEvent: (end) => {
        told.outcome = end.outcome;
        told.pending = end.pendingToolCallIds ?? null;
        told.result = end.event.result ?? null;
        told.usage = end.event.usage ?? null;
      },
      onRunFailed: ({ error }) => { told.failed = String(error.message ?? error); },
    });
    told.messages = done.newMessages.map(({ role, content, toolCalls }) => ({
      role, content: content ?? null, calls: (toolCalls ?? []).map((call) => call.function),
    }));
  } catch (error) {
    told.failed ??= String(error.message ?? error);
  }
  told.state = agent.state;
  return told;
}

const user = (content) => [{ id: `m${++count}`, role: "user", content }];
const told = {};

const clerk = agentFor("agent/clerk");
clerk.setMessages(user("what is 1+2?"));
told.clerk = await play(clerk);
clerk.addMessage(user("and again?")[0]);
told.again = await play(clerk); // the conversation goes along, with what tools have said

const pick = { name: "pick", description: "Lets the user pick.", parameters: { type: "object", properties: {} } };
const context = [{ description: "The user", value: "Ann" }];
const picker = agentFor("agent/picker");
picker.setMessages(user("pick one"));
told.offered = await play(picker, { tools: [pick], context });
const [called] = picker.messages.at(-1).toolCalls;
picker.addMessage({ id: "picked", role: "tool", toolCallId: called.id, content: "red" });
told.picked = await play(picker, { tools: [pick], context });

const graph = agentFor("graph/counter");
graph.setMessages(user("go"));
told.graph = await play(graph);

const asker = agentFor("graph/asker");
asker.setMessages(user("go"));
told.asked = await play(asker);
told.interrupts = asker.pendingInterrupts;
const answers = asker.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: "blue" }));
told.resumed = await play(asker, { resume: answers });

const failing = agentFor("agent/failing");
failing.setMessages(user("please fail"));
told.failing = await play(failing);

const stopped = agentFor("agent/slow");
stopped.setMessages(user("slowly"));
const { promise: begun, resolve: begins } = Promise.withResolvers?.() ?? deferred();
const playing = play(stopped, {}, () => begins());
await begun;
const runs = await (await fetch(`${url}/v1/runs?status=running`, { headers: { authorization: `Bearer ${token}` } })).json();
told.running = runs.runs.length;
const [{ run }] = runs.runs;
await fetch(`${url}/v1/runs/${run}/cancel`, { method: "POST", headers: { authorization: `Bearer ${token}` } });
told.stopped = await playing;

const left = agentFor("agent/slow");
left.setMessages(user("slowly"));
told.left = await play(left, {}, () => left.abortRun());

told.warned = [...warned];
const stranger = agentFor("agent/clerk", { headers: {} });
stranger.setMessages(user("hi"));
told.stranger = await play(stranger);

console.log(JSON.stringify(told));

function deferred() {
  let resolve;
  const promise = new Promise((settle) => { resolve = settle; });
  return { promise, resolve };
}
