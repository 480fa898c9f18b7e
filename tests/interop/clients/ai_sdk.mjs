// Vercel's AI SDK and openai-node against our server; the outcome of each check is in one JSON object.
//
// node ai_sdk.mjs NODE_DIR BASE_URL TOKEN
//
// The model behind the server does what the prompt says (see test_openai_clients.scripted).

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [place, baseURL, apiKey] = process.argv.slice(2);
const require = createRequire(`${place}/package.json`);
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const { embed, generateText, jsonSchema, Output, stepCountIs, streamText, tool } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { createOpenAI } = await load("@ai-sdk/openai");
const { default: OpenAI } = await load("openai");

const model = "fake:model";
const call = 'CALL clock {"zone": "UTC"}';
const parameters = {
  type: "object", properties: { zone: { type: "string" } }, required: ["zone"], additionalProperties: false,
};
const person = {
  type: "object", properties: { name: { type: "string" }, age: { type: "number" } }, required: ["name", "age"],
  additionalProperties: false,
};
const clock = tool({
  description: "Time.", inputSchema: jsonSchema(parameters), execute: async ({ zone }) => `12:00 ${zone}`,
});
const compatible = createOpenAICompatible({
  name: "cb", baseURL, apiKey, supportsStructuredOutputs: true, includeUsage: true,
});
const vercel = createOpenAI({ baseURL, apiKey });
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const base = { model: compatible(model), maxRetries: 0 };
const looped = { prompt: call, tools: { clock }, stopWhen: stepCountIs(3) };

async function whole(result) {
  let text = "";
  for await (const piece of result.textStream) text += piece;
  return text;
}

const checks = {
  text: async () => [(await generateText({ ...base, prompt: "hi" })).text, "echo: hi"],
  agent: async () => [(await generateText({ ...base, model: compatible("agent/clerk"), prompt: "hi" })).text, "echo: hi"],
  streamed: async () => [await whole(streamText({ ...base, prompt: "hi there" })), "echo: hi there"],
  tools: async () => [(await generateText({ ...base, ...looped })).text, "done: 12:00 UTC"],
  toolsStreamed: async () => [await whole(streamText({ ...base, ...looped })), "done: 12:00 UTC"],
  toolRequired: async () => {
    const done = await generateText({ ...base, prompt: call, tools: { clock }, toolChoice: "required" });
    return [done.toolCalls[0].toolName, "clock"];
  },
  schema: async () => {
    const output = Output.object({ schema: jsonSchema(person) });
    return [(await generateText({ ...base, prompt: "json", output })).output.name, "Ann"];
  },
  embedded: async () => {
    const done = await embed({ model: compatible.textEmbeddingModel("fake:vectors"), value: "a", maxRetries: 0 });
    return [done.embedding.length, 3];
  },
  openaiChat: async () => [(await generateText({ ...base, model: vercel.chat(model), prompt: "hi" })).text, "echo: hi"],
  openaiCompletion: async () => {
    const done = await generateText({ ...base, model: vercel.completion(model), prompt: "hi" });
    return [done.text.includes("echo: "), true];
  },
  openaiCompletionStreamed: async () => {
    const done = await whole(streamText({ ...base, model: vercel.completion(model), prompt: "hi" }));
    return [done.includes("echo: "), true];
  },
  responses: async () => [(await generateText({ ...base, model: vercel(model), prompt: "hi" })).text, "echo: hi"],
  responsesTools: async () => [(await generateText({ ...base, ...looped, model: vercel(model) })).text, "done: 12:00 UTC"],
  responsesToolsStreamed: async () => [
    await whole(streamText({ ...base, ...looped, model: vercel(model) })), "done: 12:00 UTC",
  ],
  responsesFailing: async () => {
    try {
      await generateText({ ...base, model: vercel(model), prompt: "FAIL" });
    } catch (error) {
      return [error.statusCode, 502];
    }
    return ["no error", 502];
  },
  node: async () => {
    const done = await client.chat.completions.create({ model, messages: [{ role: "user", content: "hi" }] });
    return [done.choices[0].message.content, "echo: hi"];
  },
  nodeStreamed: async () => {
    let text = "";
    const messages = [{ role: "user", content: "hi" }];
    for await (const chunk of await client.chat.completions.create({ model, stream: true, messages })) {
      text += chunk.choices[0]?.delta?.content ?? "";
    }
    return [text, "echo: hi"];
  },
  nodeTools: async () => {
    const runner = client.chat.completions.runTools({
      model,
      messages: [{ role: "user", content: call }],
      tools: [{
        type: "function",
        function: { name: "clock", parse: JSON.parse, function: async ({ zone }) => `12:00 ${zone}`, parameters },
      }],
    });
    return [await runner.finalContent(), "done: 12:00 UTC"];
  },
  nodeResponses: async () => [(await client.responses.create({ model, input: "hi" })).output_text, "echo: hi"],
};

const outcomes = {};
for (const [name, run] of Object.entries(checks)) {
  try {
    const [got, expected] = await run();
    outcomes[name] = got === expected ? "ok" : `got ${JSON.stringify(got)}`;
  } catch (error) {
    outcomes[name] = `${error.name}: ${error.message} ${error.responseBody ?? ""}`.slice(0, 500);
  }
}
process.stdout.write(JSON.stringify(outcomes));
