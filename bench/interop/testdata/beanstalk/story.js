// A worker of the story of beanstalk_test.go, with the client jackd or fivebeans: story.js CLIENT PORT FIRST COUNT.
'use strict';
const [client, port, first, count] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const JackdClient = require('jackd');
const fivebeans = require('fivebeans');

const say = (what, body) => process.stdout.write(`${what} ${body}\n`);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
class Gone extends Error {}

// connect returns the client's commands as functions with promises. Those are rejected with Gone when the connection ends.
async function connect() {
  let gone;
  const end = new Promise((_, reject) => { gone = () => reject(new Gone()); });
  end.catch(() => {});
  if (client === 'jackd') {
    const c = new JackdClient();
    c.socket.on('close', gone);
    c.socket.on('error', gone);
    const ask = (command) => Promise.race([command, end]);
    await ask(c.connect({ host: '127.0.0.1', port }));
    return {
      use: (t) => ask(c.use(t)), watch: (t) => ask(c.watch(t)), ignore: (t) => ask(c.ignore(t)),
      put: (body, delay) => ask(c.put(body, { priority: 1024, delay, ttr: 60 })),
      reserve: async () => { const j = await ask(c.reserveWithTimeout(1)); return [j.id, j.payload.toString()]; },
      remove: (id) => ask(c.delete(id)),
      release: (id, delay) => ask(c.release(id, { priority: 1024, delay })),
      bury: (id) => ask(c.bury(id, 1024)),
      count: async (id, key) => Number(new RegExp(`^${key}: (\\d+)$`, 'm').exec(await ask(c.statsJob(id)))[1]),
    };
  }
  const c = new fivebeans.client('127.0.0.1', port);
  const ask = (name, ...args) => Promise.race([end, new Promise((done, fail) => {
    c[name](...args, (err, ...values) => (err ? fail(new Error(err)) : done(values)));
  })]);
  c.on('close', gone);
  c.on('error', gone);
  await Promise.race([end, new Promise((done) => { c.on('connect', done); c.connect(); })]);
  return {
    use: (t) => ask('use', t), watch: (t) => ask('watch', t), ignore: (t) => ask('ignore', t),
    put: (body, delay) => ask('put', 1024, delay, 60, body),
    reserve: async () => { const [id, body] = await ask('reserve_with_timeout', 1); return [id, body.toString()]; },
    remove: (id) => ask('destroy', id),
    release: (id, delay) => ask('release', id, 1024, delay),
    bury: (id) => ask('bury', id, 1024),
    count: async (id, key) => (await ask('stats_job', id))[0][key],
  };
}

async function reach() {
  for (;;) {
    try {
      const c = await connect();
      await c.use('story');
      await c.watch('story');
      await c.ignore('default');
      return c;
    } catch (err) {
      if (!(err instanceof Gone) && !err.code) throw err; // a code is the system's
      await pause(50);
    }
  }
}

async function main() {
  let c = await reach();
  for (let n = first; n < first + count;) {
    try {
      await c.put(String(n), n % 50 === 0 ? 1 : 0);
      n++;
    } catch (err) {
      if (!(err instanceof Gone)) throw err;
      say('again', n);
      c = await reach();
    }
  }
  for (;;) {
    let body = '', removing = false;
    try {
      const job = await c.reserve().catch((err) => {
        if (err instanceof Gone || !/TIMED_OUT|DEADLINE_SOON/.test(err.message + err.response)) throw err;
      });
      if (!job) continue;
      body = job[1];
      if (body % 40 === 1 && (await c.count(job[0], 'releases')) === 0) {
        await c.release(job[0], 1);
      } else if (body % 40 === 2 && (await c.count(job[0], 'buries')) === 0) {
        await c.bury(job[0]);
      } else {
        removing = true;
        await c.remove(job[0]);
        say('done', body);
      }
    } catch (err) {
      if (!(err instanceof Gone)) throw err;
      if (removing) say('unsure', body);
      c = await reach();
    }
  }
}
main().catch((err) => { console.error(err); process.exit(1); });
