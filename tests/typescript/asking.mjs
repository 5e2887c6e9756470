// The server asks the client: in the legacy eras by requests of its own, in 2026-07-28 by `input_required` results,
// which the client answers with the very same handlers.

import assert from 'node:assert/strict';
import { Heard, refusal, refusedWith } from './link.mjs';

const INTERNAL_ERROR = -32603;
const MISSING_CAPABILITY = -32021;
const FORM = 'elicitation/create';
const MODEL = 'sampling/createMessage';
const ROOTS = 'roots/list';

const ada = { action: 'accept', content: { name: 'Ada', age: 36, size: 'large' } };
const lima = { model: 'm-1', role: 'assistant', stopReason: 'endTurn', content: { type: 'text', text: 'Lima' } };
const home = { roots: [{ uri: 'file:///home/ada', name: 'Home' }] };

/** What a client that did not declare a capability, or whose revision lacks it, makes of a tool that needs it. */
async function notAsked(link, promise) {
    await refusedWith(link.modern ? MISSING_CAPABILITY : INTERNAL_ERROR, promise);
}

export async function elicitation(target) {
    const link = await target.connect();
    const answers = [ada, { action: 'decline' }, { action: 'cancel' }];
    const asked = link.answer(FORM, () => answers.shift());
    if (!link.since('2025-06-18')) {
        await notAsked(link, link.call('ask_person'));
        assert.deepEqual(asked, []);
        return;
    }
    assert.equal(await link.text('ask_person'), 'accepted {"name":"Ada","age":36,"size":"large"}');
    assert.equal(await link.text('ask_person'), 'declined');
    assert.equal(await link.text('ask_person'), 'cancelled');
    const { message, requestedSchema } = asked[0];
    assert.equal(message, 'Who are you?');
    assert.deepEqual(Object.keys(requestedSchema.properties), ['name', 'age', 'size']);
    assert.deepEqual(requestedSchema.required, ['name']);
    assert.equal(requestedSchema.properties.age.default, link.since('2025-11-25') ? 30 : undefined);
    assert.deepEqual(requestedSchema.properties.size.enum, ['small', 'large']);
}

export async function elicitation_with_defaults(target) {
    // The client fills in the form's defaults, because it declared that it does.
    const capabilities = { elicitation: { form: { applyDefaults: true } } };
    const link = await target.connect({ capabilities });
    link.answer(FORM, { action: 'accept', content: { name: 'Bob' } });
    assert.equal(await link.text('ask_person'), 'accepted {"name":"Bob","age":30,"size":"small"}');
}

export async function elicitation_by_url(target) {
    const link = await target.connect();
    const asked = link.answer(FORM, { action: 'accept' });
    if (!link.since('2025-11-25')) {
        await notAsked(link, link.call('ask_page'));
        assert.deepEqual(asked, []);
        return;
    }
    assert.equal(await link.text('ask_page'), 'accepted null');
    const [{ mode, url, message, elicitationId }] = asked;
    assert.deepEqual([mode, url, message], ['url', 'https://sign.in/here', 'Please sign in.']);
    assert.equal(elicitationId !== undefined, !link.modern);
}

export async function sampling(target) {
    const link = await target.connect();
    const asked = link.answer(MODEL, lima);
    assert.equal(await link.text('ask_model'), 'm-1 says Lima and stops at endTurn');
    const { messages, maxTokens, systemPrompt } = asked[0];
    assert.deepEqual([maxTokens, systemPrompt], [7, 'Be brief.']);
    assert.deepEqual(messages, [{ role: 'user', content: { type: 'text', text: 'What is the capital of Peru?' } }]);
}

export async function sampling_with_tools(target) {
    const link = await target.connect();
    const use = { type: 'tool_use', id: 'use-1', name: 'weather', input: { city: 'Bern' } };
    const asked = link.answer(MODEL, { model: 'm-1', role: 'assistant', stopReason: 'toolUse', content: [use] });
    if (!link.since('2025-11-25')) {
        await notAsked(link, link.call('ask_model_with_tools'));
        return;
    }
    assert.deepEqual(JSON.parse(await link.text('ask_model_with_tools')), [use]);
    assert.deepEqual(asked[0].tools.map(tool => tool.name), ['weather']);
    assert.deepEqual(asked[0].toolChoice, { mode: 'required' });
}

export async function roots(target) {
    const link = await target.connect();
    link.answer(ROOTS, home);
    assert.equal(await link.text('ask_roots'), 'Home: file:///home/ada');
}

export async function questions_at_once(target) {
    const link = await target.connect();
    const asked = link.answer(FORM, () => (asked.length === 1 ? ada : { action: 'decline' }));
    link.answer(MODEL, lima);
    link.answer(ROOTS, home);
    const progress = [];
    const said = await link.text('ask_everything', {}, { onprogress: report => progress.push(report) });
    assert.equal(said, 'accepted {"name":"Ada","age":36,"size":"large"}, Lima, 1, declined');
    assert.deepEqual(asked.map(each => each.message), ['Who are you?', 'Who else?']);
    if (target.transport === 'http' && link.modern) {
        // Three round trips: the call, the answers to three questions, the answer to one.
        assert.equal(link.wire.sent.filter(({ body }) => body?.includes('"ask_everything"')).length, 3);
    }
}

export async function asking_prompts_and_resources(target) {
    const link = await target.connect();
    link.answer(FORM, ada);
    const who = 'accepted {"name":"Ada","age":36,"size":"large"}';
    const { messages } = await link.client.getPrompt({ name: 'introduce' });
    assert.equal(messages[0].content.text, `This is ${who}`);
    const { contents } = await link.client.readResource({ uri: 'user://current' });
    assert.equal(contents[0].text, who);
}

export async function undeclared(target) {
    // A client that declared nothing is asked nothing.
    const link = await target.connect({ capabilities: {} });
    for (const tool of ['ask_person', 'ask_page', 'ask_model', 'ask_model_with_tools', 'ask_roots']) {
        await notAsked(link, link.call(tool));
    }
}

export async function wrong_answer(target) {
    // An answer that is not of the form fails a legacy call; a modern client is asked again.
    const link = await target.connect();
    const wrong = { ...lima, role: 'assistant', content: { type: 'text', text: 'Lima' }, stopReason: 'endTurn' };
    const asked = link.answer(FORM, () => (asked.length === 1 ? { action: 'accept', content: {} } : ada));
    link.answer(MODEL, wrong);
    const call = link.text('ask_person');
    if (link.modern) assert.match(await call, /^accepted/);
    else await refusal(call);
}

/** The client's own failure to answer is the call's, and the connection goes on. */
export async function refused_answer(target) {
    const link = await target.connect();
    link.answer(MODEL, () => {
        throw new Error('no model at hand');
    });
    await refusal(link.call('ask_model'));
    assert.equal(await link.text('add', { a: 1 }), '2');
}

/** Cancelling the call withdraws its question: the client's handler is told by its signal. */
export async function cancelled_question(target) {
    const link = await target.connect();
    const stop = new AbortController();
    const begun = new Heard();
    const withdrawn = new Heard();
    let answer;
    link.answer(FORM, (_, context) => {
        begun.add('question');
        context.mcpReq.signal.addEventListener('abort', () => withdrawn.add('question'));
        return new Promise(answered => (answer = answered));
    });
    const call = refusal(link.call('ask_until_cancelled', {}, { signal: stop.signal }));
    await begun.until(() => true);
    stop.abort('enough');
    await withdrawn.until(() => true);
    // MISBEHAVIOUR: a modern client tells the handler, and yet the call that was cancelled ends only when that has
    // answered.
    if (link.modern) answer(ada);
    await call;
    if (!link.modern) assert.equal(await link.text('question_ended'), 'true');
}
