// BullMQ's adds, as tests/bench/peers/turns.py asks for them: a line in, how long it took out.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const { Queue } = createRequire(process.argv[3] + "/")("bullmq");
const { hostname, port } = new URL(process.argv[2]);
const queue = new Queue("bench", { connection: { host: hostname, port: Number(port) } });
await queue.waitUntilReady();
const data = JSON.parse(process.env.PAYLOAD);
const opts = { delay: Number(process.env.DELAY_MS) };
const works = {
  one: async (count) => {
    for (let i = 0; i < count; i++) await queue.add("report", data, opts);
  },
  many: async (count) => {
    for (let i = 0; i < count; i += 1000) {
      await queue.addBulk(Array.from({ length: 1000 }, () => ({ name: "report", data, opts })));
    }
  },
};
console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const [work, count] = line.split(" ");
  const began = process.hrtime.bigint();
  await works[work](Number(count));
  console.log(Number(process.hrtime.bigint() - began) / 1e9);
}
await queue.close();
