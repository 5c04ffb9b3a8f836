// Graphile Worker on PostgreSQL: `node peer.mjs COMMAND COUNT`, as postgres_peers.py.
//
// With what its documentation advises for many short jobs: a local queue, and completions in
// batches. A peer in another language, so it is reported and no limit is set by it.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.PEER_MODULES}/`);
const { makeWorkerUtils, run } = require("graphile-worker");

const connectionString = process.env.PEER_URL;
const text = "x".repeat(100);
const [command, words] = process.argv.slice(2);
const count = Number(words);
const chunk = 10_000;
const pauseMs = 50;
const now = () => Number(process.hrtime.bigint()) / 1e6;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const startsMs = [];
let onStart = () => {};

const utils = await makeWorkerUtils({ connectionString });
await utils.migrate();

const put = () => utils.addJob("noop", { text });

async function putMany(number) {
  for (let first = 0; first < number; first += chunk) {
    const some = Math.min(chunk, number - first);
    await utils.addJobs(Array.from({ length: some }, () => ({ identifier: "noop", payload: { text } })));
  }
}

const work = () =>
  run({
    preset: {
      worker: {
        connectionString,
        concurrentJobs: 24,
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
        localQueue: { size: 500 },
      },
    },
    logger: undefined,
    noHandleSignals: true,
    taskList: {
      noop: async () => {
        startsMs.push(now());
        onStart();
      },
    },
  });

const untilStarted = (number) =>
  new Promise((resolve) => {
    onStart = () => startsMs.length >= number && resolve();
    onStart();
  });

async function rate(number, call) {
  const beganMs = now();
  await call();
  return { per_s: (number / (now() - beganMs)) * 1e3 };
}

const commands = {
  drain: async () => {
    await putMany(count);
    await work();
    await untilStarted(count);
    return { per_s: (count / (startsMs.at(-1) - startsMs[0])) * 1e3 };
  },
  bulk: async () => {
    await put();
    return rate(count, () => putMany(count));
  },
  singles: async () => {
    await put();
    return rate(count, async () => {
      for (let number = 0; number < count; number += 1) await put();
    });
  },
  pickup: async () => {
    await work();
    await put();
    await untilStarted(1);
    const tookMs = [];
    for (let number = 0; number < count; number += 1) {
      await sleep(pauseMs);
      const beganMs = now();
      await put();
      await untilStarted(number + 2);
      tookMs.push(startsMs.at(-1) - beganMs);
    }
    tookMs.sort((one, other) => one - other);
    return { p50_ms: tookMs[count >> 1], p95_ms: tookMs[Math.floor(count * 0.95)] };
  },
};

console.log(JSON.stringify(await commands[command]()));
process.exit(0);
