// What takes time: progress, logs, cancellation, changes, subscriptions, and streams that break.

import assert from 'node:assert/strict';
import { Heard, refusal, refusedWith, textOf } from './link.mjs';

const TOOLS_CHANGED = 'notifications/tools/list_changed';
const UPDATED = 'notifications/resources/updated';
const LOG = 'notifications/message';

/** All of it arrives while the handler still runs: the handler ends only at the client's word. */
export async function live_progress_and_logs(target) {
    const link = await target.connect();
    if (!link.modern) await link.client.setLoggingLevel('warning');
    const seen = new Heard();
    const name = 'counted for typescript';
    let ended = false;
    const call = link
        .text('count', { until: name }, { level: link.modern ? 'warning' : undefined, onprogress: report => seen.add(report) })
        .finally(() => (ended = true));
    await seen.until(report => report.progress === 3);
    await link.heard.until(said => said.params.data?.line === 3);
    assert.ok(!ended);
    await link.call('signal', { name });
    assert.equal(await call, 'counted');
    const worded = link.since('2025-03-26');
    const expected = [1, 2, 3].map(n => ({ progress: n, total: 3, ...(worded ? { message: `step ${n}` } : {}) }));
    assert.deepEqual(seen.all, expected);
    const logs = link.said(LOG).map(({ params }) => [params.level, params.data]);
    assert.deepEqual(logs, [1, 2, 3].map(line => ['warning', { line }]));
}

export async function no_logs_unasked(target) {
    // A modern request that names no level gets no log lines.
    const link = await target.connect();
    await link.call('signal', { name: 'silent' });
    assert.equal(await link.text('count', { until: 'silent' }), 'counted');
    assert.deepEqual(link.said(LOG), []);
}

/** An abort reaches the handler: by a notification, on modern HTTP by the end of the stream. */
export async function cancellation(target) {
    const link = await target.connect();
    const stop = new AbortController();
    const running = new Heard();
    const name = 'hang of typescript cancelled';
    const call = refusal(link.call('hang', { name }, { signal: stop.signal, onprogress: report => running.add(report) }));
    await running.until(() => true);
    stop.abort('enough');
    assert.match(String((await call).message ?? (await call)), /enough/);
    assert.equal(await link.text('happened', { name }), 'true');
}

export async function request_timeout(target) {
    const link = await target.connect();
    const name = 'hang of typescript timed out';
    await link.call('add', { a: 1 }); // on stdio the server may still be starting, and a call that is cancelled by then is not run
    await refusedWith('REQUEST_TIMEOUT', link.call('hang', { name }, { timeout: 300 }));
    assert.equal(await link.text('happened', { name }), 'true');
}

export async function list_changes(target) {
    const link = await target.connect();
    const name = `grown_for_typescript`;
    const changes = link.modern ? await link.client.listen({ toolsListChanged: true, promptsListChanged: true }) : null;
    if (changes) assert.deepEqual(changes.honoredFilter, { toolsListChanged: true, promptsListChanged: true });
    await link.call('grow', { name });
    await link.heard.until(said => said.method === TOOLS_CHANGED);
    assert.deepEqual(link.heard.all.map(said => said.method), [TOOLS_CHANGED]);
    assert.equal(await link.text(name), `${name} at your service`);
    if (!changes) return;
    await changes.close();
    assert.equal(await changes.closed, 'local');
}

export async function resource_updates(target) {
    const link = await target.connect();
    const uri = 'config://app';
    const changes = link.modern ? await link.client.listen({ resourceSubscriptions: [uri] }) : null;
    if (changes) assert.deepEqual(changes.honoredFilter, { resourceSubscriptions: [uri] });
    else await link.client.subscribeResource({ uri });
    await link.call('touch', { uri: 'file:///logo.png' });
    await link.call('touch', { uri });
    assert.equal((await link.heard.until(said => said.method === UPDATED)).params.uri, uri);
    if (changes) {
        await changes.close();
        return;
    }
    await link.client.unsubscribeResource({ uri });
    await link.call('touch', { uri });
    await link.call('grow', { name: 'after_updates_of_typescript' }); // what it announces comes behind any update
    await link.heard.until(said => said.method === TOOLS_CHANGED);
    assert.equal(link.said(UPDATED).length, 1);
}

export async function roots_list_changed(target) {
    const link = await target.connect();
    await link.client.sendRootsListChanged();
    assert.equal(await link.text('add', { a: 1 }), '2');
}

/** The server ends the stream in the middle of a call, and the client comes back for the rest. */
export async function server_closes_stream(target) {
    const link = await target.connect();
    const seen = [];
    const call = link.text('leave', {}, { onprogress: report => seen.push(report.progress) });
    await link.wire.resumed();
    await link.call('came_back');
    assert.equal(await call, 'left and came back');
    assert.deepEqual(seen, [1, 2, 3]);
    assert.equal(link.wire.resumptions.length, 1);
}

/** The network ends the streams in the middle of a call, and nothing is lost or said twice. */
export async function streams_break(target) {
    const link = await target.connect({ transport: { reconnectionOptions: QUICKLY } });
    const seen = new Heard();
    const name = 'counted over a broken stream';
    const call = link.text('count', { until: name, steps: 2 }, { onprogress: report => seen.add(report) });
    await seen.until(report => report.progress === 2);
    link.wire.cut();
    await link.call('signal', { name });
    assert.equal(await call, 'counted');
    assert.deepEqual(seen.all.map(report => report.progress), [1, 2]);
    assert.ok(link.wire.resumptions.length >= 1);
}

export async function get_stream_breaks(target) {
    const link = await target.connect({ transport: { reconnectionOptions: QUICKLY } });
    await link.call('grow', { name: 'grown_before_the_break' });
    await link.heard.until(said => said.method === TOOLS_CHANGED);
    link.wire.cut();
    await link.call('grow', { name: 'grown_in_the_break' });
    await link.heard.until(() => link.said(TOOLS_CHANGED).length === 2);
    assert.equal(link.wire.resumptions.length, 1);
}

/** A client that was started anew takes up the call that another one left, by the last event id it saw. */
export async function resumed_by_another_client(target) {
    const first = await target.connect();
    const tokens = new Heard();
    const seen = new Heard();
    const name = 'counted for two clients';
    refusal(
        first.call('count', { until: name }, {
            onprogress: report => seen.add(report),
            onresumptiontoken: token => tokens.add({ token, after: seen.all.length })
        })
    );
    await seen.until(report => report.progress === 3);
    const { sessionId } = first.transport;
    await first.client.close(); // and no DELETE: the session stays
    const second = await target.connect({ transport: { sessionId, protocolVersion: target.revision } });
    const resumptionToken = tokens.all.find(({ after }) => after === 1).token;
    const call = second.text('count', { until: name }, { resumptionToken });
    await second.heard.until(said => said.params.data?.line === 3);
    // MISBEHAVIOUR: a client that takes up a session counts its request ids from 0 again, and so uses those that the
    // other client's calls have, which are in flight. The server must refuse them. Hence a third client.
    const third = await target.connect();
    await third.call('signal', { name });
    assert.equal(await call, 'counted');
    assert.equal(second.wire.resumptions.length, 1);
    assert.ok(!second.wire.sent.some(({ body }) => body?.includes('"count"')), 'the call was sent again');
}

/** The client comes back to the stream of a call that it cancelled itself; once, since it is told that nothing is to come. */
export async function cancelled_call_ends_its_stream(target) {
    const link = await target.connect({ transport: { reconnectionOptions: QUICKLY } });
    const stop = new AbortController();
    const running = new Heard();
    const name = 'hang of typescript resumed';
    const call = refusal(link.call('hang', { name }, { signal: stop.signal, onprogress: report => running.add(report) }));
    await running.until(() => true);
    stop.abort('enough');
    await call;
    assert.equal(await link.text('happened', { name }), 'true');
    await link.wire.resumed();
    await new Promise(passed => setTimeout(passed, 3 * QUICKLY.maxReconnectionDelay));
    assert.equal(link.wire.resumptions.length, 1);
    await link.call('grow', { name: 'grown_after_a_cancel' });
    await link.heard.until(said => said.method === TOOLS_CHANGED);
    assert.deepEqual(link.errors.map(String), []);
}

export async function unknown_event(target) {
    const link = await target.connect();
    const error = await refusal(link.transport.resumeStream('never-given.7'));
    assert.equal(error.data.status, 400);
}

export async function ended_session(target) {
    const link = await target.connect();
    await link.transport.terminateSession();
    assert.equal(link.transport.sessionId, undefined);
    const gone = await refusal(target.connect({ transport: { sessionId: 'no-such-session' } }).then(each => each.call('add', { a: 1 })));
    assert.equal(gone.data.status, 404);
}

const QUICKLY = { initialReconnectionDelay: 20, maxReconnectionDelay: 100, reconnectionDelayGrowFactor: 1, maxRetries: 5 };
