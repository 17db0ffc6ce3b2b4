// BullMQ's side of tests/bench/workers: `add` takes lines of [kind, delay of each job in ms...], `work` works them.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [, , url, modules, role, concurrency] = process.argv;
const { Queue, Worker } = createRequire(modules + "/")("bullmq");
const { hostname, port } = new URL(url);
const connection = { host: hostname, port: Number(port) };

if (role === "work") {
  const client = new (createRequire(modules + "/")("ioredis"))(connection.port, connection.host);
  const work = {
    nothing: async () => null,
    late: async (job) => void (await client.rpush("late", Date.now() - job.data.due)),
  };
  const worker = new Worker("bench", (job) => work[job.name](job), { connection, concurrency: Number(concurrency) });
  await worker.waitUntilReady();
  console.log("ready");
} else {
  const queue = new Queue("bench", { connection });
  await queue.waitUntilReady();
  console.log("ready");
  for await (const line of createInterface({ input: process.stdin })) {
    const { kind, at, pad } = JSON.parse(line);
    for (let i = 0; i < at.length; i += 1000) {
      const now = Date.now();
      await queue.addBulk(
        at.slice(i, i + 1000).map((due) => {
          const delay = Math.max(0, due - now);
          return { name: kind, data: { due, pad }, opts: delay ? { delay } : {} };
        }),
      );
    }
    console.log("added");
  }
}
