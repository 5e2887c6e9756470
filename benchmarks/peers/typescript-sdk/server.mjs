// The peer written for the official TypeScript SDK: server.mjs PORT.
//
// Requests of 2026-07-28 go to createMcpHandler, which answers with JSON unless
// a call sends a notification first. Sessions of older revisions have a
// transport each beside it, as the SDK's documentation says; theirs answer
// with JSON too, and drop what a call would send before, unless BENCH_STREAMS
// is set. The SDK wants a server made for each request, so it is the low-level
// one, and the body is handed over parsed, as it would be behind
// express.json(): together they spare a call a quarter of its time.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { setImmediate } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import {
  localhostHostValidation,
  localhostOriginValidation,
  NodeStreamableHTTPServerTransport,
  toNodeHandler,
} from '@modelcontextprotocol/node';
import { createMcpHandler, Server } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod/v4';

const VALUE = 'bench://value';
const MODERN = '2026-07-28';
// Beyond the default of 1,024, because thousands are measured.
const MAX_SUBSCRIPTIONS = 20_000;
const TOOLS = 50;
const NOTIFICATIONS = 3;

const clock = () => `clock=${process.hrtime.bigint()}`;

async function report(count, { mcpReq }) {
  const { progressToken } = mcpReq._meta;
  for (let progress = 1; progress <= count; progress++) {
    const params = { progressToken, progress, message: clock() };
    await mcpReq.notify({ method: 'notifications/progress', params });
  }
}

// A function that blocks needs a worker, which answers in the order in which it is asked.
const asked = [];
const worker = new Worker(
  `const { parentPort } = require('node:worker_threads');
   parentPort.on('message', text => parentPort.postMessage(text));`,
  { eval: true },
).on('message', text => asked.shift()(text));

const echo = { description: 'Return the text.', schema: z.object({ text: z.string() }), run: ({ text }) => text };
const later = {
  ...echo,
  async run({ text }) {
    await setImmediate();
    return text;
  },
};
const inThread = {
  ...echo,
  run: ({ text }) =>
    new Promise(resolve => {
      asked.push(resolve);
      worker.postMessage(text);
    }),
};
const withProgress = {
  ...echo,
  async run({ text }, context) {
    await report(NOTIFICATIONS, context);
    return text;
  },
};
const kinds = [later, later, later, later, later, inThread, withProgress, echo, echo, echo];

const tools = {
  echo,
  chatter: {
    description: 'Report progress as often as asked for.',
    schema: z.object({ count: z.int() }),
    async run({ count }, context) {
      await report(count, context);
      return 'done';
    },
  },
  change: {
    description: 'Announce a change to all who asked for it.',
    schema: z.object({}),
    run() {
      const made = clock();
      modern.notify.resourceUpdated(VALUE);
      // None waits for another; one that is gone is forgotten when it ends.
      for (const server of subscribed) server.sendResourceUpdated({ uri: VALUE }).catch(() => {});
      return made;
    },
  },
};
for (let number = 0; number < TOOLS; number++) {
  tools[`tool_${String(number).padStart(2, '0')}`] = kinds[number % 10];
}
const listed = Object.entries(tools).map(([name, { description, schema }]) => ({
  name,
  description,
  inputSchema: z.toJSONSchema(schema),
}));

async function call({ params }, context) {
  const { schema, run } = tools[params.name];
  const { success, data, error } = schema.safeParse(params.arguments);
  const text = success ? await run(data, context) : z.prettifyError(error);
  return { content: [{ type: 'text', text }], isError: !success };
}

function makeServer() {
  const capabilities = { tools: {}, resources: { subscribe: true } };
  const server = new Server({ name: 'bench', version: '1' }, { capabilities });
  server.setRequestHandler('tools/list', () => ({ tools: listed }));
  server.setRequestHandler('tools/call', call);
  return server;
}

const modern = createMcpHandler(makeServer, { legacy: 'reject', maxSubscriptions: MAX_SUBSCRIPTIONS });
const sessions = new Map();
const subscribed = new Set();

async function openSession() {
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    enableJsonResponse: !process.env.BENCH_STREAMS,
    onsessioninitialized: id => sessions.set(id, transport),
  });
  const server = makeServer();
  server.setRequestHandler('resources/subscribe', () => {
    subscribed.add(server);
    return {};
  });
  server.onclose = () => {
    subscribed.delete(server);
    sessions.delete(transport.sessionId);
  };
  await server.connect(transport);
  return transport;
}

async function serveSession(request, response, body) {
  const id = request.headers['mcp-session-id'];
  const opens = id === undefined && body?.method === 'initialize';
  const transport = opens ? await openSession() : sessions.get(id);
  if (transport === undefined) response.writeHead(id === undefined ? 400 : 404).end();
  else await transport.handleRequest(request, response, body);
}

function bodyOf(request) {
  return new Promise((resolve, reject) => {
    const pieces = [];
    request.on('data', piece => pieces.push(piece));
    request.on('error', reject);
    request.on('end', () => {
      try {
        resolve(JSON.parse(Buffer.concat(pieces)));
      } catch {
        resolve(undefined); // The SDK finds nothing to read, and answers for that.
      }
    });
  });
}

const serveModern = toNodeHandler(modern);
const hasGoodHost = localhostHostValidation();
const hasGoodOrigin = localhostOriginValidation();

async function serve(request, response) {
  if (!hasGoodHost(request, response) || !hasGoodOrigin(request, response)) return;
  const body = request.method === 'POST' ? await bodyOf(request) : undefined;
  const serveEra = request.headers['mcp-protocol-version'] >= MODERN ? serveModern : serveSession;
  await serveEra(request, response, body);
}

if (process.env.BENCH_STDIO) {
  serveStdio(makeServer);
} else {
  createServer((request, response) => {
    serve(request, response).catch(() => response.destroy());
  }).listen(Number(process.argv[2]), '127.0.0.1');
}
