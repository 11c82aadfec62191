// aimock with the answers of one task: three parallel calls, a call that fails, a look at the result, the end. argv: its folder, the port.
// How far the task is shows in the conversation, not in a count: each protocol counts turns in its own way.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, port] = process.argv.slice(2);
const entry = createRequire(`${folder}/`).resolve("@copilotkit/aimock");
const { LLMock } = await import(pathToFileURL(entry).href);

const WRITTEN = "ü 漢字 🙂 \"quoted\" \\ back\n";
const steps = [
  {
    content: "I look: ü 漢字 🙂",
    toolCalls: [
      { id: "call_a", name: "fs_write", arguments: { path: "written ü.txt", content: WRITTEN } },
      { id: "call_b", name: "fs_write", arguments: { path: "second.txt", content: "two" } },
      { id: "call_c", name: "fs_list", arguments: { path: "." } },
    ],
  },
  { toolCalls: [{ id: "call_d", name: "fs_read", arguments: { path: "missing.txt" } }] },
  { toolCalls: [{ id: "call_e", name: "fs_stat", arguments: { path: "second.txt" } }] },
  { content: "Done: ü 漢字 🙂" },
];
const names = (request) => (request.messages ?? []).flatMap((message) => message.tool_calls ?? []).map((call) => call.function.name);
const reached = (request) => {
  const called = names(request);
  return called.includes("fs_stat") ? 3 : called.includes("fs_read") ? 2 : called.includes("fs_write") ? 1 : 0;
};

const mock = new LLMock({ host: "127.0.0.1", port: Number(port), strict: true, journalMaxEntries: 10, logLevel: "warn" });
steps.forEach((response, step) => mock.on({ predicate: (request) => reached(request) === step }, response));
await mock.start();
