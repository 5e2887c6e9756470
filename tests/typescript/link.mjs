// A connection of the official client to the server under test, and what a scenario may ask of it.

import assert from 'node:assert/strict';
import {
    Client,
    LOG_LEVEL_META_KEY,
    SSEClientTransport,
    StreamableHTTPClientTransport
} from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

export const MODERN = '2026-07-28';
const TIMEOUT = 10_000; // milliseconds, for any one request
const CAPABILITIES = {
    sampling: { tools: {}, context: {} },
    elicitation: { form: {}, url: {} },
    roots: { listChanged: true }
};

/** Something that is said often, and that one can wait for. */
export class Heard {
    all = [];
    #waiting = [];

    add(item) {
        this.all.push(item);
        this.#waiting.splice(0).forEach(wake => wake());
    }

    async until(wanted) {
        for (;;) {
            const found = this.all.find(wanted);
            if (found !== undefined) return found;
            await new Promise(wake => this.#waiting.push(wake));
        }
    }
}

/** HTTP whose answers can be cut in the middle, as a network does, and that notes what was sent. */
class Wire {
    requests = new Heard();
    #cuts = new Set();

    fetch = async (url, init) => {
        this.requests.add({ method: init?.method ?? 'GET', headers: new Headers(init?.headers), body: init?.body });
        const response = await fetch(url, init);
        if (!response.headers.get('content-type')?.startsWith('text/event-stream')) return response;
        const cut = new AbortController();
        this.#cuts.add(cut);
        const { readable, writable } = new TransformStream();
        response.body
            .pipeTo(writable, { signal: cut.signal })
            .catch(() => {})
            .finally(() => this.#cuts.delete(cut));
        return new Response(readable, { status: response.status, headers: response.headers });
    };

    /** Break every stream that is open. */
    cut() {
        this.#cuts.forEach(cut => cut.abort(new Error('the network is gone')));
    }

    get sent() {
        return this.requests.all;
    }

    /** The GET requests that go on from an event. */
    get resumptions() {
        return this.sent.filter(goesOn);
    }

    resumed() {
        return this.requests.until(goesOn);
    }
}

function goesOn({ method, headers }) {
    return method === 'GET' && headers.has('last-event-id');
}

/** Where the server under test is, and as which kind of client to speak to it. */
export class Target {
    constructor(transport, revision, where) {
        Object.assign(this, { transport, revision, where, modern: revision === MODERN });
    }

    #open(wire, options) {
        const [first, ...rest] = this.where;
        if (this.transport === 'stdio') {
            return new StdioClientTransport({ command: first, args: rest, env: { ...process.env }, stderr: 'inherit' });
        }
        if (this.transport === 'sse') return new SSEClientTransport(new URL(first.replace('/mcp', '/sse')));
        return new StreamableHTTPClientTransport(new URL(first), { fetch: wire.fetch, ...options });
    }

    async connect({ capabilities = CAPABILITIES, negotiation, versions, transport: options, prepare } = {}) {
        const client = new Client(
            { name: 'typescript', version: '1' },
            {
                capabilities,
                supportedProtocolVersions: versions ?? (this.modern ? undefined : [this.revision]),
                versionNegotiation: { mode: negotiation ?? (this.modern ? { pin: MODERN } : 'legacy') }
            }
        );
        const wire = new Wire();
        const transport = this.#open(wire, options);
        const link = new Link(this, client, wire, transport);
        prepare?.(link);
        await client.connect(transport, { timeout: TIMEOUT });
        return link;
    }
}

export class Link {
    heard = new Heard();
    errors = [];

    constructor(target, client, wire, transport) {
        Object.assign(this, { target, client, wire, transport, modern: target.modern, revision: target.revision });
        client.onerror = error => this.errors.push(error);
        for (const method of [
            'notifications/message',
            'notifications/tools/list_changed',
            'notifications/prompts/list_changed',
            'notifications/resources/list_changed',
            'notifications/resources/updated'
        ]) {
            client.setNotificationHandler(method, said => this.heard.add(said));
        }
    }

    /** The notifications of one method that have come. */
    said(method) {
        return this.heard.all.filter(said => said.method === method);
    }

    call(name, args = {}, { level, ...options } = {}) {
        const meta = level === undefined ? {} : { _meta: { [LOG_LEVEL_META_KEY]: level } };
        return this.client.callTool({ name, arguments: args, ...meta }, { timeout: TIMEOUT, ...options });
    }

    async text(name, args, options) {
        return textOf(await this.call(name, args, options));
    }

    answer(method, reply) {
        const asked = [];
        this.client.setRequestHandler(method, async (request, context) => {
            asked.push(request.params);
            return typeof reply === 'function' ? reply(request.params, context) : reply;
        });
        return asked;
    }

    /** Whether this connection's revision is the named one or a later one. */
    since(revision) {
        return this.revision >= revision;
    }

    async close() {
        if (this.transport.sessionId !== undefined) await this.transport.terminateSession();
        await this.client.close();
    }
}

export function textOf(result) {
    assert.equal(result.content.length, 1);
    return result.content[0].text;
}

/** The error that `promise` is rejected with. */
export async function refusal(promise) {
    try {
        await promise;
    } catch (error) {
        return error;
    }
    assert.fail('it was not refused');
}

export async function refusedWith(code, promise) {
    const error = await refusal(promise);
    assert.equal(error.code, code, `${error.name}: ${error.message}`);
    return error;
}
