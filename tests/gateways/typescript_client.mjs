// The official TypeScript client as an observer: it runs plans against servers, and notes what it sees as JSON. The
// Python client beside it runs the same plans.
//
//     node typescript_client.mjs < {"era", "address", "root", "jobs": [{"target", "plan"}]}
//
// It prints a line for each job: what each step saw, by the step's key; or {"fault"}.

import assert from 'node:assert/strict';
import { Client, LOG_LEVEL_META_KEY, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const SECONDS = 200; // for any one step
const ONCE = 'Roots updated'; // it begins a log line that server-everything sends at a time of its own
const UPDATED = 'notifications/resources/updated';
const CHANGED = 'notifications/tools/list_changed';
const ADA = { name: 'Ada', check: true, email: 'ada@example.org', integer: 36, number: 1.5 };
const LISTS = {
    tools: ['tools/list', 'tools', 'name'],
    prompts: ['prompts/list', 'prompts', 'name'],
    resources: ['resources/list', 'resources', 'uri'],
    templates: ['resources/templates/list', 'resourceTemplates', 'uriTemplate']
};

class Observer {
    #asked = [];
    #logs = [];
    #said = [];
    #line = null;
    #waiting = [];

    constructor(era, root) {
        this.client = new Client(
            { name: 'typescript', version: '1' },
            {
                capabilities: { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } },
                versionNegotiation: { mode: era === 'legacy' ? 'legacy' : 'auto' }
            }
        );
        const { client } = this;
        client.onerror = () => {};
        client.setNotificationHandler('notifications/message', ({ params }) => {
            if (`${params.data}`.startsWith(ONCE)) this.#line = params;
            this.#add(params === this.#line ? [] : this.#logs, params);
        });
        for (const method of [UPDATED, CHANGED]) {
            client.setNotificationHandler(method, said => this.#add(this.#said, said));
        }
        client.setRequestHandler('elicitation/create', ({ method, params }) => {
            this.#asked.push({ method, params });
            if (params.mode === 'url') return { action: 'accept' };
            const content = 'city' in params.requestedSchema.properties ? { city: 'oslo', days: 3 } : ADA;
            return { action: 'accept', content };
        });
        client.setRequestHandler('sampling/createMessage', ({ method, params }) => {
            this.#asked.push({ method, params });
            const content = { type: 'text', text: 'Roses are red.' };
            return { role: 'assistant', model: 'm-1', stopReason: 'endTurn', content };
        });
        client.setRequestHandler('roots/list', () => ({ roots: [{ uri: root, name: 'Root' }] }));
    }

    get modern() {
        return this.client.getProtocolEra() === 'modern';
    }

    /** Run a step, and return what was seen: its outcome, log lines since the step before, and what was asked. */
    async observe(step) {
        const seen = await inTime(this[step.do](step).catch(error => ({ error: described(error) })));
        await inTime(this.#until(() => this.#logs.length >= (step.logs ?? 0)));
        Object.assign(seen, { logs: this.#logs, asked: this.#asked });
        [this.#logs, this.#asked, this.#said] = [[], [], []];
        return Object.fromEntries(Object.entries(seen).filter(([, value]) => value !== undefined && value?.length !== 0));
    }

    async about() {
        const { client } = this;
        return {
            revision: client.getNegotiatedProtocolVersion(),
            server: client.getServerVersion(),
            capabilities: client.getServerCapabilities(),
            instructions: client.getInstructions()
        };
    }

    /** List until all is there that has to be: a server may add tools once it knows the client, and announces that. */
    async list({ list, has }) {
        const listen = has.length && this.modern ? await this.client.listen({ toolsListChanged: true }) : null;
        for (;;) {
            this.#said = [];
            const seen = await this.#items(list);
            if (has.every(name => name in seen.items)) {
                await listen?.close();
                return seen;
            }
            await this.#heard(CHANGED);
        }
    }

    async #items(list) {
        const [method, kind, key] = LISTS[list];
        const items = [];
        let cursor;
        do {
            const page = await this.client.request({ method, params: { cursor } });
            items.push(...page[kind]);
            cursor = page.nextCursor;
        } while (cursor !== undefined);
        return { items: Object.fromEntries(items.map(item => [item[key], item])) };
    }

    async once() {
        await this.#until(() => this.#line !== null);
        return { line: this.#line };
    }

    async call({ tool, arguments: given, cancel }) {
        // MISBEHAVIOUR: the client drops reports of progress that come in one piece with the result. So they are noted
        // where the call goes on until it is cancelled.
        if (!cancel) return { result: await this.#start({ tool, arguments: given }) };
        const progress = [];
        const stop = new AbortController();
        const onprogress = report => this.#add(progress, [report.progress, report.total ?? null, report.message ?? null]);
        const called = this.#start({ tool, arguments: given }, { onprogress, signal: stop.signal });
        const ended = called.then(() => assert.fail('it was not cancelled'), () => {});
        await this.#until(() => progress.length > 0);
        stop.abort('enough');
        await ended;
        return { progress };
    }

    #start({ tool: name, arguments: given }, options) {
        const meta = this.modern ? { _meta: { [LOG_LEVEL_META_KEY]: 'debug' } } : {};
        return this.client.callTool({ name, arguments: given, ...meta }, options);
    }

    async read({ uri }) {
        return { result: await this.client.readResource({ uri }) };
    }

    async prompt({ prompt: name, arguments: given }) {
        return { result: await this.client.getPrompt({ name, arguments: given }) };
    }

    async complete({ ref, argument: name, value }) {
        const type = 'name' in ref ? 'ref/prompt' : 'ref/resource';
        return { result: await this.client.complete({ ref: { type, ...ref }, argument: { name, value } }) };
    }

    async level({ level }) {
        if (!this.modern) await this.client.setLoggingLevel(level);
        return {};
    }

    /** Have a tool change a resource, and wait for the update. */
    async updates({ uri, call }) {
        const listen = this.modern ? await this.client.listen({ resourceSubscriptions: [uri] }) : null;
        if (!listen) await this.client.subscribeResource({ uri });
        await this.#start(call);
        const update = await this.#heard(UPDATED);
        if (listen) await listen.close();
        else await this.client.unsubscribeResource({ uri });
        return { update: update.params.uri };
    }

    /** Have a tool change the list of tools, and list them at each notification until the change is there. */
    async changes({ call, grown }) {
        const listen = this.modern ? await this.client.listen({ toolsListChanged: true }) : null;
        await this.#start(call);
        for (;;) {
            await this.#heard(CHANGED);
            this.#said = [];
            const names = Object.keys((await this.#items('tools')).items).filter(name => name.endsWith(grown));
            if (names.length) {
                await listen?.close();
                return { grown: names };
            }
        }
    }

    async #heard(method) {
        await this.#until(() => this.#said.some(said => said.method === method));
        return this.#said.find(said => said.method === method);
    }

    async #until(true_) {
        while (!true_()) await new Promise(wake => this.#waiting.push(wake));
    }

    #add(list, item) {
        list.push(item);
        this.#waiting.splice(0).forEach(wake => wake());
    }
}

function described({ code, message, data }) {
    return { code, message, data };
}

/** What a promise resolves to, or that it was late. */
async function inTime(promise) {
    let timer;
    const end = new Promise(end => {
        timer = setTimeout(() => end({ late: `no end after ${SECONDS} s` }), SECONDS * 1000);
    });
    try {
        return await Promise.race([promise, end]);
    } finally {
        clearTimeout(timer);
    }
}

function transport({ url, command, args }, address) {
    if (url === undefined) return new StdioClientTransport({ command, args, stderr: 'ignore' });
    return new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { 'x-forwarded-for': address } } });
}

async function run({ target, plan }, { era, address, root }) {
    const observer = new Observer(era, root);
    const link = transport(target, address);
    const seen = {};
    try {
        await observer.client.connect(link);
        for (const step of plan) seen[step.key] = await observer.observe(step);
        return seen;
    } catch (error) {
        return { fault: `${error?.stack ?? error}` };
    } finally {
        if (link.sessionId !== undefined) await Promise.allSettled([link.terminateSession()]);
        await observer.client.close();
    }
}

// A step that is late leaves a call behind, which fails when its connection is closed.
process.on('unhandledRejection', () => {});

let input = '';
for await (const chunk of process.stdin) input += chunk;
const given = JSON.parse(input);
for (const job of given.jobs) {
    const line = `${JSON.stringify(await run(job, given))}\n`;
    await new Promise(written => process.stdout.write(line, written));
}
process.exit(0);
