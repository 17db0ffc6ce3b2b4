// BullMQ: adds and a worker, by the lines that tests/bench/peers/turns.py describes.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { appendFileSync, existsSync } from "node:fs";

const [, , modules, role, url, concurrency] = process.argv;
const { Queue, Worker } = createRequire(modules + "/")("bullmq");
const { hostname, port } = new URL(url);
const connection = { host: hostname, port: Number(port) };
const note = (text) => appendFileSync(process.env.NOTES, `${text}\n`);
const kinds = {
  nothing: async () => null,
  late: async (job) => note(Date.now() - job.data.due),
  held: async () => {
    note("begun");
    if (existsSync(process.env.HOLD)) await new Promise((over) => setTimeout(over, 600_000));
  },
};

if (role === "work") {
  const worker = new Worker("bench", (job) => kinds[job.name](job), { connection, concurrency: Number(concurrency) });
  await worker.waitUntilReady();
  console.log("ready");
} else {
  const queue = new Queue("bench", { connection });
  await queue.waitUntilReady();
  const data = JSON.parse(process.env.PAYLOAD);
  const opts = { delay: Number(process.env.DELAY_MS) };
  const bulk = async (jobs) => {
    for (let i = 0; i < jobs.length; i += 1000) await queue.addBulk(jobs.slice(i, i + 1000));
  };
  const works = {
    one: async (count) => {
      for (let i = 0; i < count; i++) await queue.add("report", data, opts);
    },
    many: (count) => bulk(Array.from({ length: count }, () => ({ name: "report", data, opts }))),
    due: (count, name, first, every) => {
      const now = Date.now();
      const at = (i) => Math.round((Number(first) || now) + i * Number(every));
      const job = (i) => ({
        name,
        data: { ...data, user: data.user.slice(0, 88), due: at(i) },
        opts: Number(first) ? { delay: Math.max(0, at(i) - now) } : {},
      });
      return bulk(Array.from({ length: count }, (_, i) => job(i)));
    },
  };
  console.log("ready");
  for await (const line of createInterface({ input: process.stdin })) {
    const [work, count, ...given] = line.split(" ");
    const began = process.hrtime.bigint();
    await works[work](Number(count), ...given);
    console.log(Number(process.hrtime.bigint() - began) / 1e9);
  }
  await queue.close();
}
