// Plays the story of TestFaktoryNode on the server at argv[2] with 8 jobs at a time: 10,000 jobs exactly once, jobs that fail, jobs with a
// time, and a server that is killed. It prints "kill", waits for a line, and prints "done" at the end.
const assert = require("node:assert");
const readline = require("node:readline");
const faktory = require("faktory-worker");

const url = process.argv[2];
const counts = {};
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const size = (type) => Object.keys(counts[type] || {}).length;
const again = (type) => Object.values(counts[type]).reduce((sum, n) => sum + n - 1, 0);
const until = async (what) => {
  while (!(await what())) await pause(10);
};

function count(type, id) {
  counts[type] = counts[type] || {};
  counts[type][id] = (counts[type][id] || 0) + 1;
  return counts[type][id];
}

async function pushAll(client, type, n) {
  for (let from = 0; from < n; from += 1000) {
    const jobs = [];
    for (let i = from; i < Math.min(from + 1000, n); i++) jobs.push(client.job(type, i));
    assert.deepStrictEqual(await client.pushBulk(jobs), {});
  }
}

(async () => {
  const client = await faktory.connect({ url });
  const early = [];
  faktory.register("Once", (i) => void count("Once", i));
  faktory.register("Timed", (i, at) => {
    if (Date.now() < at) early.push(i);
    count("Timed", i);
  });
  faktory.register("Flaky", (i) => {
    if (count("Flaky", i) < 3) throw new Error("not yet");
  });
  faktory.register("Slow", async (i) => {
    await pause(2);
    count("Slow", i);
  });
  faktory.register("Custom", (...args) => async ({ job }) => {
    assert.deepStrictEqual(args, [{ é: [1, null] }]);
    assert.deepStrictEqual(job.custom, { z: 1, a: { b: "c" } });
    count("Custom", 1);
  });
  const worker = await faktory.work({ url, concurrency: 8 });
  worker.on("error", () => {}); // the server is killed

  await pushAll(client, "Once", 10000);
  await until(() => size("Once") === 10000);
  assert.strictEqual(again("Once"), 0);
  console.log("10000 jobs once");

  const custom = client.job("Custom", { é: [1, null] });
  custom.custom = { z: 1, a: { b: "c" } };
  await custom.push();
  await until(() => size("Custom") === 1);

  const at = Date.now() + 1500;
  for (let i = 0; i < 20; i++) {
    const job = client.job("Timed", i, at);
    job.at = new Date(at);
    await job.push();
  }
  await until(() => size("Timed") === 20);
  assert.deepStrictEqual(early, []);
  console.log("20 jobs with a time");

  await pushAll(client, "Flaky", 100);
  await until(async () => {
    if (size("Flaky") < 100 || again("Flaky") < 200) {
      await client.retries.ofType("Flaky").requeue();
      return false;
    }
    return true;
  });
  console.log("100 jobs that fail twice");

  await pushAll(client, "Slow", 3000);
  await until(() => size("Slow") > 1000);
  const lines = readline.createInterface({ input: process.stdin });
  const killed = new Promise((resolve) => lines.once("line", resolve));
  console.log("kill");
  await killed;
  await until(() => size("Slow") === 3000);
  console.log(`${again("Slow")} of 3000 jobs were done again after kill -9`);
  assert(again("Slow") <= 8);

  await worker.stop();
  const info = await client.info();
  assert.strictEqual(info.faktory.queues.default, 0);
  assert.strictEqual(info.faktory.sets.retries + info.faktory.sets.dead, 0);
  console.log("done");
  process.exit(0);
})().catch((e) => {
  console.error(e);
  process.exit(1);
});
