// One server that is several processes.

import assert from 'node:assert/strict';
import process from 'node:process';

const TOOLS_CHANGED = 'notifications/tools/list_changed';
const QUICKLY = { initialReconnectionDelay: 20, maxReconnectionDelay: 100, reconnectionDelayGrowFactor: 1, maxRetries: 5 };
const AT_ONCE = 8; // calls, each on a connection of its own

/** The process that has the session is killed, and the session goes on in another one: its id, its client's answers, its changes. */
export async function owner_dies(target) {
    const link = await target.connect({ transport: { reconnectionOptions: QUICKLY } });
    const { sessionId } = link.transport;
    const asked = link.answer('elicitation/create', { action: 'accept', content: { name: 'Ada', age: 36, size: 'large' } });
    const owner = await ownerOf(link);
    await link.call('grow', { name: 'grown_before_the_kill' });
    await link.heard.until(said => said.method === TOOLS_CHANGED);
    process.kill(owner, 'SIGKILL');
    assert.notEqual(await ownerOf(link, { killed: owner }), owner);
    await link.heard.until(() => link.said(TOOLS_CHANGED).length >= 2); // of all that may have changed
    assert.equal(await link.text('ask_person'), 'accepted {"name":"Ada","age":36,"size":"large"}');
    assert.equal(asked.length, 1);
    assert.equal(link.transport.sessionId, sessionId);
    assert.equal(link.wire.sent.filter(({ body }) => body?.includes('"initialize"')).length, 1);
}

/** The process that serves the session, wherever its calls come; if another one was killed, once no call is lost with that. */
async function ownerOf(link, { killed } = {}) {
    for (;;) {
        const calls = await Promise.allSettled(Array.from({ length: AT_ONCE }, () => link.text('where')));
        if (killed !== undefined && calls.some(({ status }) => status === 'rejected')) {
            await new Promise(passed => setTimeout(passed, QUICKLY.initialReconnectionDelay));
            continue;
        }
        const owners = new Set(calls.map(({ value }) => Number(value)));
        assert.equal(owners.size, 1, JSON.stringify(calls));
        return [...owners][0];
    }
}
