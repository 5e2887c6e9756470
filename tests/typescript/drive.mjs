// Runs scenarios of the official client against a server, each on a connection of its own, and prints one line of
// JSON for each: {"scenario": ..., "fault": null or what went wrong}.
//
//     node drive.mjs TRANSPORT REVISION SCENARIO,SCENARIO,... URL-or-command...
//     node drive.mjs scenarios

import { Target } from './link.mjs';
import * as asking from './asking.mjs';
import * as features from './features.mjs';
import * as lasting from './lasting.mjs';
import * as workers from './workers.mjs';

const SCENARIOS = { ...features, ...lasting, ...asking, ...workers };
const PATIENCE = 60_000; // milliseconds, for a scenario

/** Returns once the line is written: what is still to be written is lost at the exit. */
function tell(report) {
    return new Promise(written => process.stdout.write(`${JSON.stringify(report)}\n`, written));
}

async function run(scenario, target) {
    let late;
    const links = [];
    const connect = target.connect.bind(target);
    target.connect = async options => {
        const link = await connect(options);
        links.push(link);
        return link;
    };
    try {
        await Promise.race([
            scenario(target),
            new Promise((_, fail) => {
                late = setTimeout(() => fail(new Error(`not at its end after ${PATIENCE} ms`)), PATIENCE);
            })
        ]);
        return null;
    } catch (error) {
        const seen = links.flatMap(link => link.errors.map(each => `\nonerror: ${each}`));
        return `${error?.stack ?? error}${seen.join('')}`;
    } finally {
        clearTimeout(late);
        await Promise.allSettled(links.map(link => link.close()));
    }
}

// A scenario that fails leaves calls behind, which fail when its connections are closed; that is no news.
process.on('unhandledRejection', () => {});

const [transport, revision, names, ...where] = process.argv.slice(2);
if (transport === 'scenarios') {
    await tell(Object.keys(SCENARIOS));
} else {
    for (const name of names.split(',')) {
        await tell({ scenario: name, fault: await run(SCENARIOS[name], new Target(transport, revision, where)) });
    }
}
process.exit(0);
