// What a server offers: each scenario drives one connected client, whatever its revision and transport. The client
// validates results against the schema of the revision, and structured content against the tools' output schemas.

import assert from 'node:assert/strict';
import { ResourceNotFoundError } from '@modelcontextprotocol/client';
import { MODERN, refusal, refusedWith, textOf } from './link.mjs';

const INVALID_PARAMS = -32602;
const METHOD_NOT_FOUND = -32601;
const SECRET = 'the password is swordfish';
const PIXEL = Buffer.from([0x89, ...Buffer.from('PNG pixel')]).toString('base64');

export async function handshake(target) {
    const { client, revision, modern } = await target.connect();
    assert.equal(client.getNegotiatedProtocolVersion(), revision);
    assert.equal(client.getProtocolEra(), modern ? 'modern' : 'legacy');
    const { name, version, title } = client.getServerVersion();
    assert.deepEqual([name, version], ['interop', '1.2.3']);
    assert.equal(title, revision >= '2025-06-18' ? 'Interop' : undefined);
    assert.equal(client.getInstructions(), 'Ask for the weather.');
    const offered = client.getServerCapabilities();
    assert.deepEqual(offered.tools, { listChanged: true });
    assert.deepEqual(offered.prompts, { listChanged: true });
    assert.deepEqual(offered.resources, { listChanged: true, subscribe: true });
    assert.notEqual(offered.logging, undefined);
    assert.equal(offered.completions !== undefined, revision >= '2025-03-26');
}

export async function negotiation(target) {
    const { client } = await target.connect({ negotiation: 'auto', versions: [MODERN, '2025-11-25'] });
    assert.equal(client.getNegotiatedProtocolVersion(), MODERN);
    assert.deepEqual((await client.discover()).supportedVersions, client.getDiscoverResult().supportedVersions);
    // The client's own default is the legacy handshake, with the newest revision that has one.
    const plain = await target.connect({ negotiation: 'legacy', versions: undefined });
    assert.equal(plain.client.getNegotiatedProtocolVersion(), '2025-11-25');
}

export async function unknown_revision(target) {
    // The server counters with a revision that it speaks; a client that speaks none but its own must then leave.
    const error = await refusal(target.connect({ versions: ['2024-10-07'] }));
    assert.match(error.message, /Server's protocol version is not supported: 2025-11-25/);
}

export async function pages_of_tools(target) {
    const { client, revision } = await target.connect();
    const { tools, nextCursor } = await client.listTools(); // the client walks the pages
    assert.equal(nextCursor, undefined);
    const names = tools.map(tool => tool.name);
    assert.deepEqual(names.slice(0, 3), ['add', 'forecast', 'media']);
    assert.equal(new Set(names).size, names.length);
    const add = tools[0];
    assert.equal(add.description, 'Add two numbers.');
    assert.deepEqual(add.inputSchema.required, ['a']);
    assert.equal(add.title, revision >= '2025-06-18' ? 'Sum' : undefined);
    assert.equal(add.annotations !== undefined, revision >= '2025-03-26');
    assert.equal(add.outputSchema !== undefined, revision >= '2025-06-18');
    const page = await client.request({ method: 'tools/list', params: {} });
    assert.equal(page.tools.length, 4);
    const next = await client.listTools({ cursor: page.nextCursor });
    assert.deepEqual(next.tools.map(tool => tool.name), names.slice(4, 8));
    await refusedWith(INVALID_PARAMS, client.listTools({ cursor: 'made up' }));
}

export async function structured_output(target) {
    const link = await target.connect();
    await link.client.listTools(); // from now on the client judges structured content
    const forecast = await link.call('forecast', { city: 'Bern', days: 1 });
    const days = { 'Bern 0': { high: 20, sky: 'clear' } };
    assert.deepEqual(JSON.parse(textOf(forecast)), days);
    assert.deepEqual(forecast.structuredContent, link.since('2025-06-18') ? days : undefined);
    const total = await link.call('add', { a: 2 });
    assert.equal(textOf(total), '3');
    assert.deepEqual(total.structuredContent, link.modern ? 3 : link.since('2025-06-18') ? { result: 3 } : undefined);
}

export async function media(target) {
    const link = await target.connect();
    const [text, image, audio, file] = (await link.call('media')).content;
    assert.equal(text.text, 'text');
    assert.deepEqual([image.type, image.data, image.mimeType], ['image', PIXEL, 'image/png']);
    const sound = Buffer.from('RIFF').toString('base64');
    if (link.since('2025-03-26')) assert.deepEqual([audio.type, audio.data], ['audio', sound]);
    else assert.deepEqual([audio.type, audio.resource.blob], ['resource', sound]);
    assert.deepEqual([file.type, file.resource.uri], ['resource', 'file:///a.bin']);
}

export async function failing_tools(target) {
    const link = await target.connect();
    const refused = await link.call('refuse');
    assert.ok(refused.isError);
    assert.equal(textOf(refused), 'no such city: try Bern');
    const crashed = await link.call('crash');
    assert.ok(crashed.isError);
    assert.ok(!textOf(crashed).includes(SECRET));
}

export async function wrong_calls(target) {
    const link = await target.connect();
    const error = await refusedWith(INVALID_PARAMS, link.call('no_such_tool'));
    assert.match(error.message, /no_such_tool/);
    for (const wrong of [{ a: 'one' }, {}, { a: 1, c: 2 }]) {
        if (link.since('2025-11-25')) assert.ok((await link.call('add', wrong)).isError);
        else await refusedWith(INVALID_PARAMS, link.call('add', wrong));
    }
}

export async function unknown_method(target) {
    const { client, transport, modern } = await target.connect();
    const asked = client.request({ method: 'made/up', params: {} }, ANYTHING);
    if (modern && transport.sessionId === undefined && target.transport === 'http') {
        // MISBEHAVIOUR: revision 2026-07-28 has an unknown method answered with status 404 and the JSON-RPC error
        // -32601. The client reads the error out of a 400, and out of no other status: of this one it makes an
        // HTTP error, whose text is the answer.
        const error = await refusal(asked);
        assert.equal(error.data.status, 404);
        assert.equal(JSON.parse(error.data.text).error.code, METHOD_NOT_FOUND);
    } else {
        await refusedWith(METHOD_NOT_FOUND, asked);
    }
}

/** A schema that accepts every result, for methods that the client does not know. */
const ANYTHING = { '~standard': { version: 1, vendor: 'test', validate: value => ({ value }) } };

export async function mirrored_argument(target) {
    const link = await target.connect();
    await link.client.listTools();
    for (const region of ['us-west1', 'Zürich ', '']) {
        assert.equal(await link.text('mirror', { region }), region);
    }
}

export async function mirrored_argument_unlisted(target) {
    // A client that has not listed the tool sends no header, is refused, lists the tools, and calls again.
    const link = await target.connect();
    assert.equal(await link.text('mirror', { region: 'north' }), 'north');
}

export async function resources(target) {
    const { client } = await target.connect();
    const listed = (await client.listResources()).resources.map(resource => resource.uri);
    assert.deepEqual(listed, ['config://app', 'file:///logo.png', 'user://current']);
    const [template] = (await client.listResourceTemplates()).resourceTemplates;
    assert.equal(template.uriTemplate, 'cities://{name}');
    const read = async uri => (await client.readResource({ uri })).contents[0];
    const config = await read('config://app');
    assert.deepEqual([config.text, config.mimeType], ['{"retries":3}', 'application/json']);
    const logo = await read('file:///logo.png');
    assert.deepEqual([logo.blob, logo.mimeType], [PIXEL, 'image/png']);
    assert.equal((await read('cities://Bern')).text, 'Bern is a city');
    for (const missing of ['cities://Atlantis', 'nowhere://at/all']) {
        // Legacy servers say -32002, and the client makes the modern code of it. What is on the wire, the tests with
        // the Python client see.
        const error = await refusedWith(INVALID_PARAMS, read(missing));
        assert.ok(error instanceof ResourceNotFoundError);
        assert.equal(error.uri, missing);
    }
}

export async function prompts(target) {
    const { client } = await target.connect();
    const [review] = (await client.listPrompts()).prompts;
    assert.deepEqual(review.arguments.map(each => [each.name, Boolean(each.required)]), [['code', true], ['tone', false]]);
    const { messages } = await client.getPrompt({ name: 'review', arguments: { code: 'x = 1' } });
    assert.deepEqual(messages, [{ role: 'user', content: { type: 'text', text: 'In a kind tone, review x = 1' } }]);
    await refusedWith(INVALID_PARAMS, client.getPrompt({ name: 'review', arguments: {} }));
    await refusedWith(INVALID_PARAMS, client.getPrompt({ name: 'no_such_prompt' }));
}

export async function completion(target) {
    const { client } = await target.connect();
    const city = { type: 'ref/resource', uri: 'cities://{name}' };
    const found = await client.complete({ ref: city, argument: { name: 'name', value: 'Ber' } });
    assert.deepEqual(found.completion.values, ['Berlin', 'Bern']);
    assert.equal(found.completion.total, 3);
    const review = { type: 'ref/prompt', name: 'review' };
    const tone = { ref: review, argument: { name: 'tone', value: 'k' }, context: { arguments: { code: 'x' } } };
    assert.deepEqual((await client.complete(tone)).completion.values, ['kind to x']);
    const nothing = { ref: review, argument: { name: 'nothing', value: '' } };
    await refusedWith(INVALID_PARAMS, client.complete(nothing));
}

export async function ping(target) {
    const { client, modern } = await target.connect();
    if (!modern) {
        await client.ping();
        return;
    }
    // Revision 2026-07-28 has no ping, and the client does not send one.
    await refusedWith('METHOD_NOT_SUPPORTED_BY_PROTOCOL_VERSION', client.ping());
}
